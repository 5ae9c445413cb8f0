from django.db import migrations, models

from scheduler.models import kept_inputs


def keep(apps, schema_editor):
    plans = apps.get_model("scheduler", "Plan")
    for pk, problem in plans.objects.exclude(problem={}).values_list("pk", "problem").iterator(chunk_size=10):
        plans.objects.filter(pk=pk).update(inputs=kept_inputs(problem))


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0010_what_ifs_are_resumed")]

    operations = [
        migrations.AddField(model_name="plan", name="inputs", field=models.JSONField(default=dict)),
        migrations.RunPython(keep, migrations.RunPython.noop),
    ]
