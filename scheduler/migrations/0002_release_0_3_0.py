"""From release 0.2.0 to 0.3.0."""

from django.db import migrations, models


#: the stacks that existed when strategy and routing became one choice; each is named after its strategy
STACKS = (
    "nereus",
    "proteus",
    "infaas-accuracy",
    "clipper-ht",
    "clipper-ha",
    "sommelier",
    "proteus-wo-ms",
    "proteus-wo-mp",
    "proteus-wo-ab",
)


def _choose_stacks(apps, schema_editor) -> None:
    """Choices of a strategy become choices of a stack.

    The stack has the strategy's name, and a routing is part of it now.
    """
    choices = apps.get_model("scheduler", "Choice").objects
    strategy = choices.filter(setting="strategy").first()
    if strategy is not None and strategy.value in STACKS:
        choices.update_or_create(setting="stack", defaults={"value": strategy.value})
    choices.filter(setting__in=("strategy", "routing")).delete()


class Migration(migrations.Migration):

    replaces = [
        ('scheduler', '0004_stacks'),
        ('scheduler', '0005_repairs'),
        ('scheduler', '0006_leases'),
        ('scheduler', '0007_plan_method'),
        ('scheduler', '0008_promises'),
        ('scheduler', '0009_plan_changed'),
        ('scheduler', '0010_what_ifs_are_resumed'),
        ('scheduler', '0011_plan_inputs'),
        ('scheduler', '0012_raised_repairs'),
    ]

    dependencies = [
        ('scheduler', '0001_initial'),
    ]

    operations = [
        migrations.RenameField(
            model_name='plan',
            old_name='strategy',
            new_name='stack',
        ),
        migrations.CreateModel(
            name='KnownRepair',
            fields=[
                ('key', models.CharField(max_length=300, primary_key=True, serialize=False)),
                ('since', models.DateTimeField()),
                ('stamp', models.CharField(max_length=40)),
                ('witnessed', models.BooleanField(default=False)),
                ('ignored', models.CharField(blank=True, default='', max_length=32)),
                ('ignored_by', models.CharField(blank=True, default='', max_length=150)),
            ],
            options={
                'ordering': ['key'],
            },
        ),
        migrations.CreateModel(
            name='WorkLease',
            fields=[
                ('name', models.CharField(max_length=20, primary_key=True, serialize=False)),
                ('holder', models.CharField(blank=True, default='', max_length=120)),
                ('epoch', models.PositiveBigIntegerField(default=0)),
                ('renewals', models.PositiveBigIntegerField(default=0)),
            ],
        ),
        migrations.AddField(
            model_name='plan',
            name='method',
            field=models.CharField(blank=True, default='', max_length=10),
        ),
        migrations.CreateModel(
            name='Promise',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('stamp', models.CharField(max_length=40)),
                ('window_s', models.PositiveIntegerField()),
                ('windows', models.PositiveIntegerField()),
                ('wall_s', models.FloatField()),
                ('plan', models.PositiveBigIntegerField()),
                ('stack', models.CharField(max_length=40)),
                ('index', models.CharField(max_length=64)),
                ('state', models.CharField(choices=[('waiting', 'waits for its window to be over'), ('compared', 'compared with what came'), ('void', 'what it was made for changed meanwhile, or nothing is known of what came')], default='waiting', max_length=10)),
                ('expected', models.JSONField(default=dict)),
                ('observed', models.JSONField(default=dict)),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.AddField(
            model_name='plan',
            name='changed',
            field=models.BooleanField(default=True),
        ),
        migrations.CreateModel(
            name='WhatIf',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('stamp', models.CharField(max_length=40)),
                ('by', models.CharField(max_length=150)),
                ('changes', models.JSONField()),
                ('state', models.CharField(choices=[('waiting', 'waits for the worker'), ('planning', 'the plan is being made'), ('simulating', 'the plan is made, its promise is being simulated'), ('done', 'done'), ('failed', 'failed')], default='waiting', max_length=10)),
                ('progress', models.FloatField(default=0.0)),
                ('error', models.CharField(blank=True, default='', max_length=500)),
                ('index', models.CharField(blank=True, default='', max_length=64)),
                ('plan', models.JSONField(default=dict)),
                ('present_plan', models.JSONField(default=dict)),
                ('promise', models.JSONField(default=dict)),
                ('present_promise', models.JSONField(default=dict)),
                ('applied', models.DateTimeField(blank=True, null=True)),
                ('holder', models.CharField(blank=True, default='', max_length=12)),
                ('resumed', models.PositiveSmallIntegerField(default=0)),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.AddField(
            model_name='plan',
            name='inputs',
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name='knownrepair',
            name='raised',
            field=models.BooleanField(default=False),
        ),
        migrations.RunPython(_choose_stacks, migrations.RunPython.noop),
    ]
