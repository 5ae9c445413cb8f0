from django.db import migrations


class Migration(migrations.Migration):
    """State only: how the admin calls things."""

    dependencies = [("registry", "0007_size_classes")]

    operations = [
        migrations.AlterModelOptions(name="apikey", options={"verbose_name": "API key"}),
        migrations.AlterModelOptions(
            name="profilelatency",
            options={"ordering": ["size", "batch"], "verbose_name_plural": "profile latencies"},
        ),
    ]
