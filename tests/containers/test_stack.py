"""The end-to-end suite once more, on the containers of docker-compose.yml, and what only containers can show."""

import asyncio

import pytest
from containers.stack import Stack
from e2e.harness import chat, post, until_held
from e2e.test_bad_input import *  # noqa: F403 - pytest collects what stands in a module
from e2e.test_losses import *  # noqa: F403
from e2e.test_main_job import *  # noqa: F403

pytestmark = [pytest.mark.container, pytest.mark.timeout(600)]  # the first test waits for the image, too


async def test_a_gateway_that_is_stopped_lets_its_streams_end(demo, session) -> None:
    stack: Stack = demo()
    stream = asyncio.create_task(
        post(session, stack.urls[0], chat(200, stream=True, ignore_eos=True), x_request_id="long")
    )
    await until_held(stack)
    await asyncio.to_thread(stack.do, "stop", "gateway-1")
    status, _, body = await stream
    assert status == 200
    assert body.endswith(b"[DONE]\n\n")
    stopped = stack.compose.get_container("gateway-1", include_all=True)
    assert (stopped.State, stopped.ExitCode) == ("exited", 0)


@pytest.mark.parametrize("service", ["engine-1", "server-1", "gateway-1"])
def test_a_container_is_neither_root_nor_able_to_change_its_image(shared: Stack, service: str) -> None:
    seen, _, _ = shared.compose.exec_in_container(
        ["bash", "-c", "id -u; grep CapBnd /proc/1/status; touch /opt/forebay/x 2>&1 || true"], service
    )
    assert seen.split()[:3] == ["65532", "CapBnd:", "0" * 16]
    assert "Read-only file system" in seen
