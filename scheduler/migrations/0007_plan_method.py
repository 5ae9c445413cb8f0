from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0006_leases")]

    operations = [
        migrations.AddField("plan", "method", models.CharField(max_length=10, blank=True, default="")),
    ]
