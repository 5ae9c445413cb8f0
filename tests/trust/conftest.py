import uvloop


def pytest_asyncio_loop_factories(config, item):
    """Run the tests as executors and gateways run."""
    return {"uvloop": uvloop.new_event_loop}
