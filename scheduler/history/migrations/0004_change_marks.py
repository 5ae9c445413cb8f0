from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("history", "0003_mark_counts")]

    operations = [
        migrations.AlterField(
            model_name="mark",
            name="kind",
            field=models.CharField(
                choices=[
                    ("plan", "Plan"),
                    ("lost", "Lost"),
                    ("back", "Back"),
                    ("upload", "Upload"),
                    ("change", "Change"),
                    ("note", "Note"),
                ],
                max_length=6,
            ),
        ),
    ]
