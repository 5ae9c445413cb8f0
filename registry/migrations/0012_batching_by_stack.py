from django.db import migrations


class Migration(migrations.Migration):
    """An application's batch policy is its cluster's stack's."""

    dependencies = [("registry", "0011_faults")]

    operations = [
        migrations.RemoveField("application", "batch_policy"),
        migrations.RemoveField("application", "batch_options"),
    ]
