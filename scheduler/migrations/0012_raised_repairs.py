from django.db import migrations, models


def raise_all(apps, schema_editor):
    # An older release announced each when it was first seen.
    apps.get_model("scheduler", "KnownRepair").objects.update(raised=True)


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0011_plan_inputs")]

    operations = [
        migrations.AddField(model_name="knownrepair", name="raised", field=models.BooleanField(default=False)),
        migrations.RunPython(raise_all, migrations.RunPython.noop),
    ]
