from __future__ import annotations

from django.db import migrations, models


def _member(name):
    return [
        migrations.AddField(
            name, "key_hash", models.CharField(blank=True, default="", editable=False, max_length=64)
        ),
        migrations.AddField(
            name, "certificate_until", models.DateTimeField(blank=True, editable=False, null=True)
        ),
        migrations.AddField(
            name, "certificate_issuer", models.CharField(blank=True, default="", editable=False, max_length=64)
        ),
        migrations.AddField(name, "certificate_lapsed", models.BooleanField(default=False, editable=False)),
    ]


class Migration(migrations.Migration):
    dependencies = [("registry", "0015_joins")]

    operations = [
        migrations.CreateModel(
            "MembersAuthority",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("pem", models.TextField()),
                ("key_hash", models.CharField(max_length=64)),
                ("made", models.DateTimeField(auto_now_add=True)),
            ],
        ),
        *_member("node"),
        *_member("gateway"),
        migrations.AddField("gateway", "core_address", models.CharField(blank=True, default="", max_length=200)),
    ]
