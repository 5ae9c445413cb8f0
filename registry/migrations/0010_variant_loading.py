from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('registry', '0009_member_behind_since'),
    ]

    operations = [
        migrations.AlterField(
            model_name='variant',
            name='state',
            field=models.CharField(choices=[('profiling', 'waiting for or in its first profile'), ('loading', 'profiled; no gateway answers for its application yet'), ('ready', 'profiled, and its application answers queries'), ('failed', 'could not be profiled or measured'), ('draining', 'leaving the plan, then deleted')], default='profiling', max_length=9),
        ),
    ]
