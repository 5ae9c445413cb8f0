from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("registry", "0013_access")]

    operations = [
        migrations.AddField("gateway", "seen_s", models.FloatField(editable=False, null=True)),
        migrations.AddField("node", "seen_s", models.FloatField(editable=False, null=True)),
    ]
