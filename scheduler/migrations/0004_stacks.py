from django.db import migrations

#: the stacks that existed when strategy and routing became one choice; each is named after its strategy
STACKS = (
    "nereus",
    "proteus",
    "infaas-accuracy",
    "clipper-ht",
    "clipper-ha",
    "sommelier",
    "proteus-wo-ms",
    "proteus-wo-mp",
    "proteus-wo-ab",
)


def to_stacks(apps, schema_editor) -> None:
    """Choices of a strategy become choices of a stack.

The stack has the strategy's name, and a routing is part of it now.
"""
    choices = apps.get_model("scheduler", "Choice").objects
    strategy = choices.filter(setting="strategy").first()
    if strategy is not None and strategy.value in STACKS:
        choices.update_or_create(setting="stack", defaults={"value": strategy.value})
    choices.filter(setting__in=("strategy", "routing")).delete()


def to_strategies(apps, schema_editor) -> None:
    choices = apps.get_model("scheduler", "Choice").objects
    stack = choices.filter(setting="stack").first()
    if stack is not None:
        choices.update_or_create(setting="strategy", defaults={"value": stack.value})
        stack.delete()


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0003_overload_label")]

    operations = [
        migrations.RenameField("plan", "strategy", "stack"),
        migrations.RunPython(to_stacks, to_strategies),
    ]
