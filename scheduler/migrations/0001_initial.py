"""Tables of release 0.2.0."""

from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ('scheduler', '0002_choices'),
        ('scheduler', '0003_overload_label'),
    ]

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='Choice',
            fields=[
                ('setting', models.CharField(max_length=20, primary_key=True, serialize=False)),
                ('value', models.CharField(max_length=40)),
                ('changed', models.DateTimeField(auto_now=True)),
            ],
            options={
                'ordering': ['setting'],
            },
        ),
        migrations.CreateModel(
            name='Plan',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('trigger', models.CharField(choices=[('period', 'regular'), ('burst', "demand left the plan's band"), ('overload', 'queries were refused'), ('change', 'variants, devices or settings changed'), ('manual', 'asked for')], max_length=8)),
                ('trigger_detail', models.CharField(blank=True, default='', max_length=300)),
                ('strategy', models.CharField(max_length=40)),
                ('problem', models.JSONField()),
                ('allocation', models.JSONField()),
                ('wire', models.JSONField()),
                ('status', models.CharField(max_length=10)),
                ('accuracy', models.FloatField(default=0.0)),
                ('demand', models.FloatField(default=0.0)),
                ('served', models.FloatField(default=0.0)),
                ('solve_s', models.FloatField(default=0.0)),
                ('gap', models.FloatField(default=0.0)),
                ('moves', models.PositiveIntegerField(default=0)),
                ('reasons', models.JSONField(default=list)),
                ('created', models.DateTimeField(auto_now_add=True, db_index=True)),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
    ]
