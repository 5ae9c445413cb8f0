from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("registry", "0015_joins")]

    operations = [
        migrations.AddField("node", "cordoned_at", models.DateTimeField(blank=True, null=True)),
    ]
