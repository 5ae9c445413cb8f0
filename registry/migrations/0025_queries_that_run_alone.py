from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('registry', '0024_application_non_finite'),
    ]

    operations = [
        migrations.AddField(
            model_name='application',
            name='batch',
            field=models.BooleanField(default=True),
        ),
        migrations.AddField(
            model_name='variant',
            name='alone',
            field=models.TextField(blank=True, default=''),
        ),
        migrations.AlterField(
            model_name='fault',
            name='cause',
            field=models.CharField(choices=[('crashed', 'the executor crashed'), ('stopped', 'the run exceeded its limit and was stopped'), ('mixed', 'the answer to a query depended on the others of its run')], max_length=7),
        ),
    ]
