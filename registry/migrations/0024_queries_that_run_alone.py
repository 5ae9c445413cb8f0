from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('registry', '0023_division'),
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
    ]
