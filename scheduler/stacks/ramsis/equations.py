"""Linear equations of a policy over all states, without their matrix. Pure.

By generalised conjugate residuals: some tens of products, where sweeps need thousands once a long queue changes slowly.
Source: Eisenstat, Elman and Schultz, "Variational Iterative Methods for Nonsymmetric Systems of Linear Equations" (SIAM
Journal on Numerical Analysis, 1983).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scheduler.progress import report

#: products of a solution at most, beside those that compute a residual anew
PRODUCTS = 400
#: directions that are kept; then it begins anew from where it is
KEPT = 100
#: part of an image, or of its step, below which it is rounding
ROUNDING = 1e-12
#: part of the residual below which a step has gained nothing
NOTHING = 1e-3


def solved(
    product: Callable[[np.ndarray], np.ndarray], right: np.ndarray, start: np.ndarray, within: float
) -> np.ndarray:
    """Where the product is ``right``, or near it after ``PRODUCTS``.

    Args:
        product: of a linear operator with a vector.
        start: to begin from.
        within: residual at most, of any element.
    """
    solution, left = start, right - product(start)
    steps, images = np.empty((KEPT, len(right))), np.empty((KEPT, len(right)))
    step, kept = left, 0
    for _ in range(PRODUCTS):
        if np.abs(left).max() <= within:
            break
        report()
        if kept == KEPT:
            # The residual, which was updated step by step, is computed anew.
            left = right - product(solution)
            step, kept = left, 0
        image = product(step)
        whole = np.linalg.norm(image)
        # Once is not enough, for rounding.
        for _ in range(2):
            before = images[:kept] @ image
            image = image - before @ images[:kept]
            step = step - before @ steps[:kept]
        size = np.linalg.norm(image)
        if not size > ROUNDING * max(whole, np.linalg.norm(step)):
            # Only rounding is new.
            if not kept:
                break
            left = right - product(solution)
            step, kept = left, 0
            continue
        step, image = step / size, image / size
        gain = image @ left
        solution, left, norm = solution + gain * step, left - gain * image, np.linalg.norm(left)
        steps[kept], images[kept] = step, image
        kept += 1
        # Where the residual shows no new direction, the last image does.
        step = left if abs(gain) > NOTHING * norm else image
    return solution
