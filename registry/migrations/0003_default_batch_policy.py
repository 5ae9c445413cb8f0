from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("registry", "0002_profile_job_heard")]

    operations = [
        migrations.AlterField(
            model_name="application",
            name="batch_policy",
            field=models.CharField(default="nereus", max_length=40),
        ),
    ]
