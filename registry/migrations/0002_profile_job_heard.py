from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("registry", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="profilejob",
            name="heard",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
