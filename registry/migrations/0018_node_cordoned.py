from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("registry", "0017_device_address")]

    operations = [
        migrations.AddField("node", "cordoned_at", models.DateTimeField(blank=True, null=True)),
    ]
