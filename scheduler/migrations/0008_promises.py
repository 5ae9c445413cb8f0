from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('scheduler', '0007_plan_method'),
    ]

    operations = [
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
            ],
            options={
                'ordering': ['-id'],
            },
        ),
    ]
