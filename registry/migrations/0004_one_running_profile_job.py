from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("registry", "0003_default_batch_policy")]

    operations = [
        migrations.AddConstraint(
            model_name="profilejob",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "running")), fields=("device",), name="one_running_profile_job"
            ),
        ),
    ]
