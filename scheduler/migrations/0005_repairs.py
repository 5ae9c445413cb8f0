from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0004_stacks")]

    operations = [
        migrations.CreateModel(
            name="KnownRepair",
            fields=[
                ("key", models.CharField(max_length=300, primary_key=True, serialize=False)),
                ("since", models.DateTimeField()),
                ("stamp", models.CharField(max_length=40)),
                ("witnessed", models.BooleanField(default=False)),
                ("ignored", models.CharField(blank=True, default="", max_length=32)),
                ("ignored_by", models.CharField(blank=True, default="", max_length=150)),
            ],
            options={"ordering": ["key"]},
        ),
    ]
