"""Tables of release 0.2.0."""

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ('registry', '0002_profile_job_heard'),
        ('registry', '0003_default_batch_policy'),
        ('registry', '0004_one_running_profile_job'),
        ('registry', '0005_operator_wishes'),
        ('registry', '0006_shapes'),
        ('registry', '0007_size_classes'),
        ('registry', '0008_plural_names'),
        ('registry', '0009_member_behind_since'),
        ('registry', '0010_variant_loading'),
        ('registry', '0011_faults'),
    ]

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='ApiKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\\Z', "must be 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit")])),
                ('prefix', models.CharField(max_length=8)),
                ('key_hash', models.CharField(max_length=64, unique=True)),
                ('created', models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name='Application',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\\Z', "must be 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit")])),
                ('description', models.TextField(blank=True, default='')),
                ('slo_ms', models.FloatField(validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(600000)])),
                ('late', models.CharField(choices=[('shed', 'refuse what cannot be in time'), ('serve', 'answer late')], default='shed', max_length=5)),
                ('signature', models.JSONField()),
                ('batch_policy', models.CharField(default='proteus', max_length=40)),
                ('batch_options', models.JSONField(blank=True, default=dict)),
                ('weight', models.FloatField(default=1.0, validators=[django.core.validators.MinValueValidator(0.001), django.core.validators.MaxValueValidator(1000)])),
                ('state', models.CharField(choices=[('active', 'Active'), ('draining', 'Draining')], default='active', max_length=8)),
                ('created', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='Gateway',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\\Z', "must be 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit")])),
                ('state', models.CharField(choices=[('pending', 'waits for approval'), ('approved', 'Approved'), ('revoked', 'Revoked')], default='pending', max_length=8)),
                ('credential_hash', models.CharField(blank=True, db_index=True, default='', max_length=64)),
                ('channel', models.CharField(blank=True, default='', max_length=200)),
                ('last_seen', models.DateTimeField(blank=True, null=True)),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('address', models.CharField(blank=True, default='', max_length=200)),
            ],
            options={
                'ordering': ['name'],
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='JoinToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\\Z', "must be 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit")])),
                ('token_hash', models.CharField(max_length=64, unique=True)),
                ('auto_approve', models.BooleanField(default=False)),
                ('created', models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name='Node',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\\Z', "must be 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit")])),
                ('state', models.CharField(choices=[('pending', 'waits for approval'), ('approved', 'Approved'), ('revoked', 'Revoked')], default='pending', max_length=8)),
                ('credential_hash', models.CharField(blank=True, db_index=True, default='', max_length=64)),
                ('channel', models.CharField(blank=True, default='', max_length=200)),
                ('last_seen', models.DateTimeField(blank=True, null=True)),
                ('created', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['name'],
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='Device',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('ref', models.CharField(max_length=120, unique=True)),
                ('kind', models.CharField(max_length=8)),
                ('type', models.CharField(db_index=True, max_length=120)),
                ('description', models.CharField(blank=True, default='', max_length=200)),
                ('cores', models.JSONField(default=list)),
                ('memory_bytes', models.BigIntegerField(default=0)),
                ('endpoint', models.CharField(blank=True, default='', max_length=200)),
                ('state', models.CharField(choices=[('starting', 'Starting'), ('up', 'Up'), ('draining', 'Draining'), ('down', 'Down')], default='down', max_length=8)),
                ('detail', models.TextField(blank=True, default='')),
                ('warm', models.JSONField(default=list)),
                ('plan_version', models.PositiveBigIntegerField(default=0)),
                ('changed', models.DateTimeField(auto_now=True)),
                ('node', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='devices', to='registry.node')),
            ],
            options={
                'ordering': ['ref'],
            },
        ),
        migrations.CreateModel(
            name='ValidationSet',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(max_length=64)),
                ('size_bytes', models.BigIntegerField()),
                ('metric', models.CharField(max_length=40)),
                ('rows', models.PositiveIntegerField()),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('application', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='validation_set', to='registry.application')),
            ],
        ),
        migrations.CreateModel(
            name='Variant',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\\Z', "must be 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit")])),
                ('digest', models.CharField(db_index=True, max_length=64)),
                ('size_bytes', models.BigIntegerField()),
                ('accuracy', models.FloatField(blank=True, null=True)),
                ('accuracy_source', models.CharField(choices=[('declared', 'Declared'), ('measured', 'Measured')], default='declared', max_length=8)),
                ('opset', models.PositiveIntegerField(default=0)),
                ('inspection', models.JSONField(blank=True, default=dict)),
                ('state', models.CharField(choices=[('profiling', 'waiting for or in its first profile'), ('ready', 'Ready'), ('failed', 'could not be profiled or measured'), ('draining', 'leaving the plan, then deleted')], default='profiling', max_length=9)),
                ('detail', models.TextField(blank=True, default='')),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('application', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='variants', to='registry.application')),
            ],
            options={
                'ordering': ['application__name', 'name'],
            },
        ),
        migrations.CreateModel(
            name='ProfileJob',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('device_type', models.CharField(max_length=120)),
                ('reason', models.CharField(choices=[('registration', 'Registration'), ('demand', 'asked for'), ('drift', 'Drift'), ('new_type', 'new device type')], default='registration', max_length=12)),
                ('state', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('done', 'Done'), ('failed', 'Failed'), ('cancelled', 'Cancelled')], default='queued', max_length=9)),
                ('phase', models.CharField(blank=True, default='waiting', max_length=12)),
                ('progress', models.FloatField(default=0.0)),
                ('detail', models.TextField(blank=True, default='')),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('started', models.DateTimeField(blank=True, null=True)),
                ('finished', models.DateTimeField(blank=True, null=True)),
                ('device', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to='registry.device')),
                ('variant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='profile_jobs', to='registry.variant')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='Profile',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('device_type', models.CharField(max_length=120)),
                ('load_s', models.FloatField()),
                ('memory_bytes', models.BigIntegerField()),
                ('measured', models.DateTimeField(auto_now=True)),
                ('variant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='profiles', to='registry.variant')),
            ],
            options={
                'ordering': ['variant', 'device_type'],
            },
        ),
        migrations.CreateModel(
            name='ProfileLatency',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('batch', models.PositiveIntegerField()),
                ('p50_ms', models.FloatField()),
                ('p95_ms', models.FloatField()),
                ('mean_ms', models.FloatField()),
                ('samples', models.PositiveIntegerField()),
                ('profile', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='latencies', to='registry.profile')),
            ],
            options={
                'ordering': ['batch'],
                'constraints': [models.UniqueConstraint(fields=('profile', 'batch'), name='latency_once')],
            },
        ),
        migrations.AddConstraint(
            model_name='variant',
            constraint=models.UniqueConstraint(fields=('application', 'name'), name='variant_name_once'),
        ),
        migrations.AddConstraint(
            model_name='profilejob',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ['queued', 'running'])), fields=('variant', 'device_type'), name='one_open_profile_job'),
        ),
        migrations.AddConstraint(
            model_name='profile',
            constraint=models.UniqueConstraint(fields=('variant', 'device_type'), name='profile_once'),
        ),
        migrations.AddField(
            model_name='profilejob',
            name='heard',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name='application',
            name='batch_policy',
            field=models.CharField(default='nereus', max_length=40),
        ),
        migrations.AddConstraint(
            model_name='profilejob',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'running')), fields=('device',), name='one_running_profile_job'),
        ),
        migrations.AddField(
            model_name='application',
            name='floor',
            field=models.FloatField(default=0.0, validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(1)]),
        ),
        migrations.AddField(
            model_name='variant',
            name='excluded',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='variant',
            name='pinned',
            field=models.BooleanField(default=False),
        ),
        migrations.AddConstraint(
            model_name='variant',
            constraint=models.CheckConstraint(condition=models.Q(('pinned', False), ('excluded', False), _connector='OR'), name='variant_pinned_or_excluded'),
        ),
        migrations.AddField(
            model_name='application',
            name='padding',
            field=models.JSONField(blank=True, default=dict),
        ),
        migrations.AddField(
            model_name='application',
            name='sizes',
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AlterModelOptions(
            name='profilelatency',
            options={'ordering': ['size', 'batch']},
        ),
        migrations.RemoveConstraint(
            model_name='profilelatency',
            name='latency_once',
        ),
        migrations.AddField(
            model_name='profilelatency',
            name='size',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddConstraint(
            model_name='profilelatency',
            constraint=models.UniqueConstraint(fields=('profile', 'size', 'batch'), name='latency_once'),
        ),
        migrations.AlterModelOptions(
            name='apikey',
            options={'verbose_name': 'API key'},
        ),
        migrations.AlterModelOptions(
            name='profilelatency',
            options={'ordering': ['size', 'batch'], 'verbose_name_plural': 'profile latencies'},
        ),
        migrations.AddField(
            model_name='gateway',
            name='behind_since',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='node',
            name='behind_since',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name='variant',
            name='state',
            field=models.CharField(choices=[('profiling', 'waiting for or in its first profile'), ('loading', 'profiled; no gateway answers for its application yet'), ('ready', 'profiled, and its application answers queries'), ('failed', 'could not be profiled or measured'), ('draining', 'leaving the plan, then deleted')], default='profiling', max_length=9),
        ),
        migrations.AddField(
            model_name='profile',
            name='blocked',
            field=models.TextField(blank=True, default=''),
        ),
        migrations.CreateModel(
            name='Fault',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('device', models.CharField(max_length=120)),
                ('device_type', models.CharField(max_length=120)),
                ('cause', models.CharField(choices=[('crashed', 'the executor crashed'), ('stopped', 'the run exceeded its limit and was stopped')], max_length=7)),
                ('detail', models.TextField(blank=True, default='')),
                ('at', models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ('variant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='faults', to='registry.variant')),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
    ]
