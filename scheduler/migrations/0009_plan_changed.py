from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0008_promises")]

    operations = [
        migrations.AddField(model_name="plan", name="changed", field=models.BooleanField(default=True)),
    ]
