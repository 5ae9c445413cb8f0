from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("registry", "0019_node_cordoned_until")]

    operations = [
        migrations.AddField("gateway", "reach", models.JSONField(editable=False, null=True)),
        migrations.AddField("device", "serving_s", models.FloatField(editable=False, null=True)),
        migrations.AddField("device", "unreached_since", models.DateTimeField(editable=False, null=True)),
    ]
