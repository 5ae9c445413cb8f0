import hashlib

import django.core.validators
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

OPERATOR = "operator"


def _make_operators(apps, schema_editor) -> None:
    """Accounts that could do everything so far still can."""
    using = schema_editor.connection.alias
    group, _ = apps.get_model("auth", "Group").objects.using(using).get_or_create(name=OPERATOR)
    for user in apps.get_model("auth", "User").objects.using(using).filter(is_staff=True):
        user.groups.add(group)


def _hash_tokens(apps, schema_editor) -> None:
    """Keep plain tokens of the REST framework as hashes, and drop its table."""
    connection = schema_editor.connection
    if "authtoken_token" not in connection.introspection.table_names():
        return
    tokens = apps.get_model("registry", "ApiToken").objects.using(connection.alias)
    users = {user.pk: user for user in apps.get_model("auth", "User").objects.using(connection.alias).all()}
    with connection.cursor() as cursor:
        cursor.execute("SELECT key, user_id, created FROM authtoken_token")
        rows = cursor.fetchall()
    for key, user, _created in rows:
        if user in users:
            tokens.create(
                name=f"migrated-{user}",
                user=users[user],
                role=OPERATOR,
                prefix=key[:8],
                token_hash=hashlib.sha256(key.encode()).hexdigest(),
            )
    schema_editor.execute("DROP TABLE authtoken_token")


class Migration(migrations.Migration):
    """Roles, limits of API keys, hashed API tokens, the audit log."""

    dependencies = [
        ("registry", "0012_batching_by_stack"),
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='AuditEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(auto_now_add=True, db_index=True)),
                ('actor', models.CharField(db_index=True, max_length=150)),
                ('origin', models.CharField(max_length=120)),
                ('address', models.CharField(blank=True, default='', max_length=45)),
                ('action', models.CharField(max_length=20)),
                ('kind', models.CharField(max_length=20)),
                ('ref', models.CharField(db_index=True, max_length=150)),
                ('before', models.JSONField(default=dict)),
                ('after', models.JSONField(default=dict)),
            ],
            options={
                'verbose_name_plural': 'audit entries',
                'ordering': ['-id'],
            },
        ),
        migrations.AddField(
            model_name='apikey',
            name='applications',
            field=models.JSONField(blank=True, default=None, null=True),
        ),
        migrations.AddField(
            model_name='apikey',
            name='burst',
            field=models.PositiveIntegerField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000)]),
        ),
        migrations.AddField(
            model_name='apikey',
            name='expires',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='apikey',
            name='rate',
            field=models.FloatField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(0.001), django.core.validators.MaxValueValidator(1000000.0)]),
        ),
        migrations.AddField(
            model_name='apikey',
            name='share',
            field=models.FloatField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(0.001), django.core.validators.MaxValueValidator(1)]),
        ),
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\\Z', "must be 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit")])),
                ('role', models.CharField(choices=[('viewer', 'viewer'), ('model owner', 'model owner'), ('operator', 'operator')], max_length=11)),
                ('prefix', models.CharField(max_length=8)),
                ('token_hash', models.CharField(max_length=64, unique=True)),
                ('expires', models.DateTimeField(blank=True, null=True)),
                ('last_used', models.DateTimeField(blank=True, null=True)),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_tokens', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'API token',
                'ordering': ['name'],
            },
        ),
        migrations.RunPython(_make_operators, migrations.RunPython.noop),
        migrations.RunPython(_hash_tokens, migrations.RunPython.noop),
    ]
