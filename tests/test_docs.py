"""What the documentation says is what the product does."""

from appliance.management.commands.settings_doc import PATH, render
from tests.running import ROOT


def test_the_settings_page_is_the_settings():
    assert (ROOT / PATH).read_text() == render(), "run: python manage.py settings_doc"
