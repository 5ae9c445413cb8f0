from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0012_raised_repairs")]

    operations = [
        migrations.AddField("worklease", "wanted", models.PositiveBigIntegerField(default=0)),
        migrations.AddField("worklease", "started", models.PositiveBigIntegerField(default=0)),
        migrations.AddField("worklease", "served", models.PositiveBigIntegerField(default=0)),
        migrations.AddField("worklease", "causes", models.JSONField(default=list)),
        migrations.AddField("worklease", "rates", models.JSONField(default=dict)),
        migrations.AddField("worklease", "requested", models.JSONField(default=dict)),
        migrations.AddField("worklease", "ended", models.CharField(blank=True, default="", max_length=40)),
        migrations.AddField("worklease", "error", models.CharField(blank=True, default="", max_length=500)),
        migrations.AddField("worklease", "failing_since", models.DateTimeField(blank=True, null=True)),
    ]
