from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduler", "0002_choices"),
    ]

    operations = [
        migrations.AlterField(
            model_name="plan",
            name="trigger",
            field=models.CharField(
                choices=[
                    ("period", "regular"),
                    ("burst", "demand left the plan's band"),
                    ("overload", "queries were refused"),
                    ("change", "variants, devices or settings changed"),
                    ("manual", "asked for"),
                ],
                max_length=8,
            ),
        ),
    ]
