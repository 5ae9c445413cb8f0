from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("registry", "0018_node_cordoned")]

    operations = [
        migrations.AddField("node", "cordoned_until", models.DateTimeField(blank=True, null=True)),
    ]
