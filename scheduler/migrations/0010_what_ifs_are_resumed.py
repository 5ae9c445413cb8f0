from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0009_plan_changed")]

    operations = [
        migrations.AddField(
            model_name="whatif", name="holder", field=models.CharField(blank=True, default="", max_length=12)
        ),
        migrations.AddField(model_name="whatif", name="resumed", field=models.PositiveSmallIntegerField(default=0)),
    ]
