from __future__ import annotations

import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

KINDS = [("any", "nodes and gateways"), ("node", "nodes"), ("gateway", "gateways")]


def tokens_of_starts(apps, schema_editor):
    """A start calls its own token ``local``, or ``local-2`` where that name is taken."""
    tokens = apps.get_model("registry", "JoinToken").objects.using(schema_editor.connection.alias)
    tokens.filter(name__regex=r"^local(-[0-9]+)?$", auto_approve=True).update(own_box=True)


def _member(name):
    def token():
        return models.ForeignKey(
            blank=True,
            null=True,
            on_delete=django.db.models.deletion.SET_NULL,
            related_name="+",
            to="registry.jointoken",
        )

    return [
        migrations.AddField(name, "machine", models.CharField(blank=True, default="", max_length=64)),
        migrations.AddField(name, "joined_with", token()),
        migrations.AddField(name, "claim_channel", models.CharField(blank=True, default="", max_length=200)),
        migrations.AddField(name, "claim_with", token()),
        migrations.AddField(name, "claim_address", models.CharField(blank=True, default="", max_length=45)),
        migrations.AddField(name, "claimed_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField(name, "claim_s", models.FloatField(editable=False, null=True)),
    ]


class Migration(migrations.Migration):
    dependencies = [("registry", "0014_member_seen_steadily")]

    operations = [
        migrations.AddField("jointoken", "kind", models.CharField(choices=KINDS, default="any", max_length=7)),
        migrations.AddField("jointoken", "expires", models.DateTimeField(blank=True, null=True)),
        migrations.AddField(
            "jointoken",
            "uses",
            models.PositiveIntegerField(
                blank=True,
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(1),
                    django.core.validators.MaxValueValidator(1000000),
                ],
            ),
        ),
        migrations.AddField("jointoken", "used", models.PositiveIntegerField(default=0, editable=False)),
        migrations.AddField("jointoken", "own_box", models.BooleanField(default=False, editable=False)),
        *_member("node"),
        *_member("gateway"),
        migrations.RunPython(tokens_of_starts, migrations.RunPython.noop, elidable=True),
    ]
