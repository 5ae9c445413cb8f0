"""The strip's order, the range of time and the cluster map, in a real browser engine."""

import pytest

pytestmark = pytest.mark.wide


def test_applications_that_hurt_come_first_and_quiet_ones_are_known(run_script):
    result = run_script(
        """
        const { sorted, quiet, folds } = await import("/nereus/strip.js");
        const row = (name, violations, accuracy, lately = violations) => ({ name, over: { violations, accuracy },
          violations: [violations, violations, ...Array(5).fill(lately)], accuracy: Array(7).fill(accuracy) });
        const rows = [row("calm", 0, 99), row("late", 8, 99), row("coarse", 0, 85), row("idle", null, null),
                      row("now", 0.5, 99, 60)];
        const folded = [rows.slice(0, 1), rows.slice(1, 2), rows].map((some) => folds(some)[0].text);
        return [sorted(rows).map((one) => one.name), rows.filter(quiet).map((one) => one.name), folded];
        """
    )
    assert result[:2] == [["now", "coarse", "late", "calm", "idle"], ["calm", "idle"]]
    assert result[2] == ["1 quiet application", "1 more application", "2 quiet applications and 3 more"]


def test_the_address_holds_the_range(run_script):
    result = run_script(
        """
        const t = await import("/nereus/timerange.js");
        const round = (range) => t.parse(new URL(t.address(range), "http://x").search);
        return { same: [{ seconds: 900 }, { seconds: 7776000 }, { begin: 1000, end: 2000 }].map(round),
                 odd: ["?range=-5", "?range=1", "?begin=9&end=3", "?begin=1&end=99999999999"]
                   .map((one) => t.parse(one)),
                 moved: [t.moved({ seconds: 100 }, -1, 1000), t.moved({ begin: 850, end: 950 }, 1, 1000)],
                 scaled: [t.scaled({ seconds: 100 }, 2, 1000), t.scaled({ begin: 400, end: 600 }, 0.5, 1000)],
                 chosen: t.chosen(100, 102) };
        """
    )
    assert result["same"] == [{"seconds": 900}, {"seconds": 7776000}, {"begin": 1000, "end": 2000}]
    latest = {"begin": 99999999999 - 7776000, "end": 99999999999}
    assert result["odd"] == [{"seconds": 900}, {"seconds": 10}, {"seconds": 900}, latest]
    assert result["moved"] == [{"begin": 850, "end": 950}, {"seconds": 100}]
    assert result["scaled"] == [{"seconds": 200}, {"begin": 450, "end": 550}]
    assert result["chosen"] == {"begin": 96, "end": 106}


def test_the_map_has_a_cell_for_each_device_and_shows_what_a_chosen_one_hosts(run_script):
    result = run_script(
        """
        document.body.insertAdjacentHTML("beforeend", `<select id="map-color"><option value="use">use</option>
          <option value="application">application</option><option value="state">state</option>
          <option value="temperature">temperature</option></select>
          <p id="map-legend"></p><div id="map"></div><div id="device-detail"></div>`);
        const { ClusterMap } = await import("/nereus/cells.js");
        const state = new cluster.Cluster();
        const device = (ref, more) => ({ ref, node: "box", type: "t4", state: "up", memory_bytes: 1000, warm: [1],
          ...more });
        state.applySnapshot({ now: 100, applications: [], gateways: [], jobs: [],
          nodes: [{ name: "box", state: "approved", connected: true }],
          variants: [{ id: 1, name: "quick", application: "digits", accuracy: 90, state: "ready" }],
          devices: [device("box/cuda0"),
          device("box/cuda1", { state: "down", detail: "lost" })],
          plan: { version: 1,
          placements: [{ device: "box/cuda0", variant: 1, variant_name: "quick", application: "digits", rate: 5,
          time_share: 0.5 }] } }, 100);
        state.applyNodeSecond({ t: 100, devices: [{ device: "box/cuda0", busy: 0.5, profiling: 0, queued_rows: 0,
          memory_bytes: 250, plan_version: 1, variants: [], celsius: 88.4, watts: null }] });
        const map = new ClusterMap(document.getElementById("map"), state);
        map.render();
        map.tick(101);
        const cells = [...document.querySelectorAll(".cell")];
        const shown = cells.map((cell) => [cell.textContent, cell.title.split(" · ").slice(0, 2).join(" · ")]);
        cells[0].click();
        const detail = document.querySelector('[data-testid="device-detail"]').textContent;
        const facts = document.querySelector(".facts").textContent, { title } = cells[0];
        const select = document.getElementById("map-color");
        select.value = "temperature";
        select.dispatchEvent(new Event("change"));
        const colors = cells.map((cell) => /--[a-z-]+/.exec(cell.style.background)[0]);
        const { spread } = await import("/nereus/map.js");
        const words = [spread([null, 40.2, 61], "°C", "temperature"), spread([55, null], "W", "power"),
          spread([null], "W", "power")];
        const memory = cells[0].querySelector(".cell-memory").style.width;
        map.tick(120);
        return { shown, facts, colors, words, title, memory, hosts: detail.includes("quick"),
                 stale: cells[0].textContent, tabs: cells.map((c) => c.tabIndex) };
        """
    )
    assert result["shown"] == [["50", "box/cuda0, t4, up · 50 % busy"], ["✕", "box/cuda1, t4, down · no figures now"]]
    assert result["memory"] == "25%" and result["hosts"] and result["stale"] == "–"
    assert result["tabs"] == [0, -1]
    assert "88 °C · power unknown" in result["facts"] and "88 °C · power unknown" in result["title"]
    assert result["colors"] == ["--c-violations", "--faint"]
    assert result["words"] == ["temperature 40 to 61 °C", "power 55 W", "power unknown"]
