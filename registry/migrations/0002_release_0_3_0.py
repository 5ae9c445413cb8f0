"""From release 0.2.0 to 0.3.0."""

import hashlib

import django.core.validators
import django.db.models.deletion
import registry.webhooks.rows
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


def _mark_own_tokens(apps, schema_editor) -> None:
    """A start calls its own token ``local``, or ``local-2`` where that name is taken."""
    tokens = apps.get_model("registry", "JoinToken").objects.using(schema_editor.connection.alias)
    tokens.filter(name__regex=r"^local(-[0-9]+)?$", auto_approve=True).update(own_box=True)


class Migration(migrations.Migration):

    replaces = [
        ('registry', '0012_batching_by_stack'),
        ('registry', '0013_access'),
        ('registry', '0014_member_seen_steadily'),
        ('registry', '0015_joins'),
        ('registry', '0016_members_certificates'),
        ('registry', '0017_device_address'),
        ('registry', '0018_node_cordoned'),
        ('registry', '0019_node_cordoned_until'),
        ('registry', '0020_reach'),
        ('registry', '0021_last_words_and_webhooks'),
        ('registry', '0022_application_group'),
        ('registry', '0023_division'),
        ('registry', '0024_application_non_finite'),
        ('registry', '0025_queries_that_run_alone'),
        ('registry', '0026_trial_rows'),
    ]

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('registry', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveField(
            model_name='application',
            name='batch_policy',
        ),
        migrations.RemoveField(
            model_name='application',
            name='batch_options',
        ),
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
        migrations.AddField(
            model_name='node',
            name='seen_s',
            field=models.FloatField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name='jointoken',
            name='kind',
            field=models.CharField(choices=[('any', 'nodes and gateways'), ('node', 'nodes'), ('gateway', 'gateways')], default='any', max_length=7),
        ),
        migrations.AddField(
            model_name='jointoken',
            name='expires',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='jointoken',
            name='uses',
            field=models.PositiveIntegerField(blank=True, null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000000)]),
        ),
        migrations.AddField(
            model_name='jointoken',
            name='used',
            field=models.PositiveIntegerField(default=0, editable=False),
        ),
        migrations.AddField(
            model_name='jointoken',
            name='own_box',
            field=models.BooleanField(default=False, editable=False),
        ),
        migrations.AddField(
            model_name='node',
            name='machine',
            field=models.CharField(blank=True, default='', max_length=64),
        ),
        migrations.AddField(
            model_name='node',
            name='joined_with',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='registry.jointoken'),
        ),
        migrations.AddField(
            model_name='node',
            name='claim_channel',
            field=models.CharField(blank=True, default='', max_length=200),
        ),
        migrations.AddField(
            model_name='node',
            name='claim_with',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='registry.jointoken'),
        ),
        migrations.AddField(
            model_name='node',
            name='claim_address',
            field=models.CharField(blank=True, default='', max_length=45),
        ),
        migrations.AddField(
            model_name='node',
            name='claimed_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='node',
            name='claim_s',
            field=models.FloatField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name='gateway',
            name='machine',
            field=models.CharField(blank=True, default='', max_length=64),
        ),
        migrations.AddField(
            model_name='gateway',
            name='joined_with',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='registry.jointoken'),
        ),
        migrations.AddField(
            model_name='gateway',
            name='claim_channel',
            field=models.CharField(blank=True, default='', max_length=200),
        ),
        migrations.AddField(
            model_name='gateway',
            name='claim_with',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='registry.jointoken'),
        ),
        migrations.AddField(
            model_name='gateway',
            name='claim_address',
            field=models.CharField(blank=True, default='', max_length=45),
        ),
        migrations.AddField(
            model_name='gateway',
            name='claimed_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='gateway',
            name='claim_s',
            field=models.FloatField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name='gateway',
            name='seen_s',
            field=models.FloatField(editable=False, null=True),
        ),
        migrations.CreateModel(
            name='MembersAuthority',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('pem', models.TextField()),
                ('key_hash', models.CharField(max_length=64)),
                ('made', models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.AddField(
            model_name='node',
            name='key_hash',
            field=models.CharField(blank=True, default='', editable=False, max_length=64),
        ),
        migrations.AddField(
            model_name='node',
            name='certificate_until',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name='node',
            name='certificate_issuer',
            field=models.CharField(blank=True, default='', editable=False, max_length=64),
        ),
        migrations.AddField(
            model_name='node',
            name='certificate_lapsed',
            field=models.BooleanField(default=False, editable=False),
        ),
        migrations.AddField(
            model_name='gateway',
            name='key_hash',
            field=models.CharField(blank=True, default='', editable=False, max_length=64),
        ),
        migrations.AddField(
            model_name='gateway',
            name='certificate_until',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name='gateway',
            name='certificate_issuer',
            field=models.CharField(blank=True, default='', editable=False, max_length=64),
        ),
        migrations.AddField(
            model_name='gateway',
            name='certificate_lapsed',
            field=models.BooleanField(default=False, editable=False),
        ),
        migrations.AddField(
            model_name='gateway',
            name='core_address',
            field=models.CharField(blank=True, default='', max_length=200),
        ),
        migrations.AddField(
            model_name='device',
            name='address',
            field=models.CharField(blank=True, default='', max_length=200),
        ),
        migrations.AddField(
            model_name='node',
            name='cordoned_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='node',
            name='cordoned_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='gateway',
            name='reach',
            field=models.JSONField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name='device',
            name='serving_s',
            field=models.FloatField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name='device',
            name='unreached_since',
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.CreateModel(
            name='Webhook',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=63, unique=True, validators=[django.core.validators.RegexValidator('^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\\Z', "must be 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit")])),
                ('url', models.CharField(max_length=500)),
                ('events', models.JSONField(default=list)),
                ('enabled', models.BooleanField(default=True)),
                ('salt', models.CharField(default=registry.webhooks.rows._salt, editable=False, max_length=32)),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('tried', models.DateTimeField(blank=True, editable=False, null=True)),
                ('status', models.PositiveIntegerField(blank=True, editable=False, null=True)),
                ('error', models.CharField(blank=True, default='', editable=False, max_length=300)),
                ('failures', models.PositiveIntegerField(default=0, editable=False)),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.AddField(
            model_name='gateway',
            name='last_words',
            field=models.CharField(blank=True, default='', max_length=300),
        ),
        migrations.AddField(
            model_name='gateway',
            name='release',
            field=models.CharField(blank=True, default='', max_length=40),
        ),
        migrations.AddField(
            model_name='node',
            name='last_words',
            field=models.CharField(blank=True, default='', max_length=300),
        ),
        migrations.AddField(
            model_name='node',
            name='release',
            field=models.CharField(blank=True, default='', max_length=40),
        ),
        migrations.AddField(
            model_name='application',
            name='group',
            field=models.CharField(blank=True, default='', max_length=63),
        ),
        migrations.AddField(
            model_name='device',
            name='phase',
            field=models.CharField(blank=True, choices=[('', 'Kept'), ('coming', 'Coming'), ('retiring', 'Retiring'), ('retired', 'Retired')], default='', max_length=8),
        ),
        migrations.AddField(
            model_name='node',
            name='cpu_devices',
            field=models.CharField(blank=True, default='', max_length=200),
        ),
        migrations.AddField(
            model_name='node',
            name='division',
            field=models.JSONField(default=dict, editable=False),
        ),
        migrations.AddField(
            model_name='application',
            name='non_finite',
            field=models.CharField(choices=[('error', 'refuse with a hint'), ('null', 'write null')], default='error', max_length=5),
        ),
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
        migrations.AddField(
            model_name='variant',
            name='trial_rows',
            field=models.BinaryField(blank=True, default=b''),
        ),
        # Last: PostgreSQL alters no table whose rows were changed in the same transaction.
        migrations.RunPython(_make_operators, migrations.RunPython.noop),
        migrations.RunPython(_hash_tokens, migrations.RunPython.noop),
        migrations.RunPython(_mark_own_tokens, migrations.RunPython.noop),
    ]
