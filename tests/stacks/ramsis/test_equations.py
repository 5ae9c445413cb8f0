"""Linear equations without a matrix, beside those with one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.stacks.ramsis.equations import KEPT, PRODUCTS, solved
from tests.examples import examples

pytestmark = pytest.mark.wide

WITHIN = 1e-8


@examples(20)
@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_a_solution_is_that_of_the_matrix(size, seed):
    source = np.random.default_rng(seed)
    chances = source.random((size, size)) ** 8
    matrix = np.eye(size) - 0.99 * chances / chances.sum(axis=1, keepdims=True)
    right = source.normal(size=size)
    found = solved(matrix.__matmul__, right, source.normal(size=size), WITHIN)
    assert matrix @ found == pytest.approx(right, abs=2 * WITHIN)


def test_a_residual_that_turns_in_a_circle_is_left_all_the_same():
    size = 20
    turned = np.roll(np.eye(size), 1, axis=0)
    right = np.eye(size)[0]
    # The residual and its product are at right angles until the last step.
    assert solved(turned.__matmul__, right, np.zeros(size), WITHIN) == pytest.approx(right @ turned, abs=WITHIN)


def test_products_are_limited_and_a_solution_stays_as_it_is():
    asked = []

    def product(values):
        asked.append(1)
        return np.linspace(1e-9, 1, len(values)) ** 4 * values

    size = 4 * KEPT
    assert np.isfinite(solved(product, np.ones(size), np.zeros(size), 0.0)).all()
    assert len(asked) <= PRODUCTS + 1 + PRODUCTS // KEPT
    assert (solved(lambda values: 2 * values, np.full(3, 4.0), np.full(3, 2.0), WITHIN) == 2).all()
    assert (solved(lambda values: 0 * values, np.ones(3), np.zeros(3), WITHIN) == 0).all()
