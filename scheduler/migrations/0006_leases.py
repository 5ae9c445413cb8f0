from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0005_repairs")]

    operations = [
        migrations.CreateModel(
            name="WorkLease",
            fields=[
                ("name", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("holder", models.CharField(blank=True, default="", max_length=120)),
                ("epoch", models.PositiveBigIntegerField(default=0)),
                ("renewals", models.PositiveBigIntegerField(default=0)),
            ],
        ),
    ]
