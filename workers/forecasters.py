"""Names of the demand forecasters (``NEREUS_FORECASTER``)."""

from __future__ import annotations

#: mean of the coming period, by level and trend
TREND = "trend"
#: mean of the coming period, learned
LEARNED = "learned"
#: largest second of the next minute, learned
MINUTE = "minute"
ALL = (TREND, LEARNED, MINUTE)
DEFAULT = TREND
