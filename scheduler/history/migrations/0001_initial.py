"""Tables of the history."""

from django.db import migrations, models


class Migration(migrations.Migration):

    replaces = [
        ('history', '0001_rows'),
        ('history', '0002_days'),
        ('history', '0003_mark_counts'),
        ('history', '0004_change_marks'),
    ]

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='HistoryPosition',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('folds', models.PositiveBigIntegerField(default=0)),
                ('position', models.JSONField(default=dict)),
            ],
        ),
        migrations.CreateModel(
            name='Mark',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('plan', 'Plan'), ('lost', 'Lost'), ('back', 'Back'), ('upload', 'Upload'), ('note', 'Note')], max_length=6)),
                ('subject', models.CharField(blank=True, db_index=True, default='', max_length=150)),
                ('at', models.DateTimeField(db_index=True)),
                ('text', models.CharField(max_length=300)),
                ('link', models.CharField(blank=True, default='', max_length=200)),
                ('by', models.CharField(blank=True, default='', max_length=150)),
            ],
            options={
                'ordering': ['-at', '-pk'],
            },
        ),
        migrations.CreateModel(
            name='HistoryName',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('a', 'Application'), ('v', 'Variant'), ('d', 'Device')], max_length=1)),
                ('name', models.CharField(max_length=300)),
                ('used', models.PositiveBigIntegerField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('kind', 'name'), name='history_name_once')],
            },
        ),
        migrations.CreateModel(
            name='HistoryRow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('resolution', models.PositiveIntegerField()),
                ('start', models.BigIntegerField()),
                ('seconds', models.PositiveIntegerField()),
                ('total', models.BinaryField()),
                ('applications', models.BinaryField()),
                ('variants', models.BinaryField()),
                ('devices', models.BinaryField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('resolution', 'start'), name='history_row_once')],
            },
        ),
        migrations.AddField(
            model_name='mark',
            name='count',
            field=models.PositiveIntegerField(default=1),
        ),
        migrations.AlterField(
            model_name='mark',
            name='kind',
            field=models.CharField(choices=[('plan', 'Plan'), ('lost', 'Lost'), ('back', 'Back'), ('upload', 'Upload'), ('change', 'Change'), ('note', 'Note')], max_length=6),
        ),
    ]
