"""State of the learning forecasters between plans.

Regressions are kept in Redis, so that whichever process plans next goes on with them; where Redis lost them, they start
anew. Their examples are the seconds that are recorded there, too: a restart of the control plane leaves out none.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from registry import clock
from scheduler import live
from scheduler.control.demand import HISTORY_S
from scheduler.control.learned import INPUTS, PAST_S, ForecastTarget, Learner, learn, target_of
from workers import log

logger = log.get("forecasters")

#: regressions by application, and of all of them together: for whom they are, and a stamp of the last example
LEARNED, ABOUT = live.key("learned"), live.key("learned_about")
#: seconds of two plans that may come late before an example is lost
SLACK_S = 60
#: longest period (s) whose seconds are all learned from; of longer ones the last
LONGEST_S = 60


def history_s(forecaster: str, period_s: float) -> float:
    """Recorded seconds that a plan needs."""
    target = target_of(forecaster, period_s)
    if target is None:
        return HISTORY_S + 1
    return PAST_S + target.seconds + min(period_s, LONGEST_S) + SLACK_S


def coefficients(
    seconds: Sequence[tuple[int, Mapping[str, float]]] | None,
    applications: Iterable[str],
    target: ForecastTarget,
    quantile: float,
) -> dict[str, np.ndarray]:
    """Return each application's regressions after they learned from ``seconds``.

    Regressions of applications that are not among ``applications`` are deleted.

    Args:
        seconds: (t, {application: items}), oldest first, by the wall clock; None: nothing is learned, stored or
            deleted.
    """
    client = live.client()
    about = f"{target.seconds} {int(target.largest)} {quantile:g} {INPUTS}"
    found, _, stamp = (client.get(ABOUT) or "").partition("|")
    kept = client.hgetall(LEARNED) if found == about else {}
    learners = {name: Learner(target, quantile, _state(kept.get(name))) for name in applications}
    if seconds is None:
        return {name: learner.coefficients for name, learner in learners.items()}
    ahead, last = clock.wall() - clock.steady(), clock.read(stamp) if kept else None
    since = None if last is None else round(last + ahead)
    taught = learn(learners, seconds, target, since, int(clock.wall()))
    with client.pipeline() as pipe:
        pipe.delete(LEARNED)
        if learners:
            pipe.hset(LEARNED, mapping={name: _text(learner.state) for name, learner in learners.items()})
        pipe.set(ABOUT, f"{about}|{clock.stamp(taught - ahead)}")
        pipe.execute()
    return {name: learner.coefficients for name, learner in learners.items()}


def _text(state: np.ndarray) -> str:
    return base64.b64encode(state.astype("<f4").tobytes()).decode()


def _state(text: str | None) -> np.ndarray | None:
    """A stored state; None: absent or damaged."""
    if text is None:
        return None
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), "<f4").reshape(2, INPUTS, INPUTS + 1)
    except (binascii.Error, ValueError) as error:
        logger.warning("learned_unreadable", error=str(error))
        return None
