"""Forms of the pages in a real browser: what a submitted form sends to the API."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.wide

FORM = """
<meta name="csrf-token" content="x"><main></main>
<form data-api="/thing" data-method="{method}">
  <input name="applications" value="{applications}" data-kind="names">
  <input name="rate" type="number" step="any" value="1.23457" data-kind="number-or-none">
  <input name="burst" type="number" value="" data-kind="number-or-none">
  <input name="description" value="two lines">
  <select name="late"><option value="shed">shed</option><option value="serve" selected>serve</option></select>
  <label><input type="checkbox" name="pinned"></label>
  <div data-form-error hidden></div><button type="submit">Save</button>
</form>
"""


@pytest.fixture
def submitted(blank):
    def run(script: str, method: str = "PATCH", applications: str = "*") -> list[dict]:
        bodies = []

        def take(route) -> None:
            bodies.append(route.request.post_data_json)
            route.fulfill(json={})

        blank.route("**/thing", take)
        blank.goto("/test.html")
        blank.set_content(FORM.format(method=method, applications=applications))
        blank.evaluate(
            f"""async () => {{
            const {{ startForms }} = await import("/nereus/forms.js");
            startForms();
            const form = document.querySelector("form"), button = form.querySelector("button");
            const saved = async () => {{
              button.click();
              do await new Promise((resolve) => setTimeout(resolve, 20)); while (button.disabled);
            }};
            {script}
        }}"""
        )
        return bodies

    return run


def test_a_change_sends_the_touched_fields_alone(submitted):
    bodies = submitted("form.elements.burst.value = '5'; form.elements.pinned.checked = true; await saved();")
    # The rate is shown rounded, and the description on one line: neither goes back as it is shown.
    assert bodies == [{"burst": 5, "pinned": True}]


def test_a_second_change_starts_from_the_first(submitted):
    bodies = submitted(
        "form.elements.late.value = 'shed'; await saved(); form.elements.rate.value = ''; await saved();"
        "form.elements.late.value = 'serve'; await saved();"
    )
    assert bodies == [{"late": "shed"}, {"rate": None}, {"late": "serve"}]


def test_a_new_row_gets_every_field(submitted):
    bodies = submitted("await saved();", "POST")
    everything = {"rate": 1.23457, "burst": None, "description": "two lines", "late": "serve", "pinned": False}
    assert bodies == [{**everything, "applications": None}]


def test_a_key_without_applications_stays_so(submitted):
    assert submitted("form.elements.burst.value = '5'; await saved();", applications="") == [{"burst": 5}]
    assert submitted("form.elements.applications.value = ''; await saved();") == [{"applications": []}]
    assert submitted("form.elements.applications.value = ' * '; await saved();", applications="a") == [
        {"applications": None}
    ]
    assert submitted("form.elements.applications.value = 'a, b'; await saved();") == [{"applications": ["a", "b"]}]
