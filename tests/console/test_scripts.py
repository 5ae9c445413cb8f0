"""The pages' pure scripts in Chromium."""

import pytest

pytestmark = pytest.mark.wide

PREPARE = """
const counts = (more) => ({ arrived: 0, in_time: 0, late: 0, dropped: 0, failed: 0, normalized_sum: 0, p95_ms: 0,
  by_variant: {}, ...more });
const t = new series.Telemetry();
const add = (at, gateway, applications) => t.addGatewaySecond({ t: at, gateway, ready: true, applications });
const followed = (from, end, application) => {
  const columns = { x: [from], demand: [null], throughput: [null], accuracy: [null], violations: [null], p95: [null],
    byVariant: {} };
  series.follow(columns, 100, end, (at) => t.now(at, 1, application));
  return columns;
};
"""


def test_seconds_become_columns(run_script):
    result = run_script(
        PREPARE
        + """
        const a = counts({ arrived: 10, in_time: 6, late: 1, dropped: 2, failed: 1, normalized_sum: 570, p95_ms: 40,
                           by_variant: { big: 4, small: 3 } });
        add(100, "one", { digits: a });
        add(100, "two", { digits: counts({ arrived: 2, in_time: 2, normalized_sum: 200, p95_ms: 55,
                          by_variant: { small: 2 } }), wine: counts({ arrived: 1 }) });
        add(103, "one", { digits: counts({}) });
        const late = followed(99, 103, "digits");
        add(104, "one", { digits: counts({ by_variant: { new: 1 } }) });
        series.follow(late, 2, 104, (at) => t.now(at, 1, "digits"));
        return { digits: followed(99, 103, "digits"), all: followed(99, 103).demand, now: t.now(103, 5, "digits"),
                 nothing: t.now(90, 5), late };
        """
    )
    digits = result["digits"]
    assert digits["x"] == [99, 100, 101, 102, 103]
    # Two gateways add up, seconds that nobody reported are gaps, a reported second without queries is zero.
    assert digits["demand"] == [None, 12, None, None, 0]
    assert digits["throughput"] == [None, 9, None, None, 0]
    assert digits["accuracy"] == [None, 770 / 8, None, None, None]
    assert digits["violations"] == [None, pytest.approx(100 * 4 / 12), None, None, None]
    assert digits["p95"] == [None, 55, None, None, None]
    assert digits["byVariant"] == {"big": [None, 4, None, None, 0], "small": [None, 5, None, None, 0]}
    assert result["all"] == [None, 13, None, None, 0]
    assert result["now"]["demand"] == 6 and result["nothing"] is None
    assert result["late"]["x"] == [102, 103, 104]
    assert result["late"]["byVariant"] == {"big": [None, 0, 0], "small": [None, 0, 0], "new": [None, 0, 1]}


def test_the_same_second_twice_counts_once_and_two_in_one_second_are_spread(run_script):
    result = run_script(
        PREPARE
        + """
        const one = { digits: counts({ arrived: 1 }) }, two = { digits: counts({ arrived: 2 }) };
        add(100, "g", one); add(100, "g", one);
        const once = followed(99, 101).demand;
        add(100, "g", two);
        const spread = followed(99, 101).demand;
        add(100, "g", one); add(100, "g", two);
        return { once, spread, again: followed(99, 101).demand };
        """
    )
    assert result == {"once": [None, 1, None], "spread": [1, 2, None], "again": [1, 2, None]}


def test_old_seconds_are_forgotten_and_nonsense_is_ignored(run_script):
    result = run_script(
        PREPARE
        + """
        for (let at = 0; at < 1000; at += 1) add(at, "g", { digits: counts({ arrived: 1 }) });
        add(5, "g", { digits: counts({ arrived: 9 }) });
        t.addGatewaySecond(null); t.addGatewaySecond({ t: "x", gateway: "g" }); t.addGatewaySecond({ t: 1000 });
        t.addGatewaySecond({ t: 1000, gateway: "g", applications: { digits: { arrived: "many" } } });
        return { kept: t.seconds.size, odd: t.now(1000, 1).demand };
        """
    )
    assert result == {"kept": 330, "odd": 0}


def test_the_map_tells_what_loads_what_serves_and_what_leaves(run_script):
    result = run_script(
        """
        const c = new cluster.Cluster();
        const variant = (id, name, accuracy) => ({ id, name, application: "digits", accuracy, state: "ready" });
        c.applySnapshot({ now: 50, applications: [{ name: "digits", slo_ms: 80, state: "active" }],
          variants: [variant(1, "big", 96), variant(2, "small", 72), variant(3, "old", 48)], nodes: [], gateways: [],
          devices: [{ ref: "box/cpu0", node: "box", state: "up", warm: [1, 3] }], jobs: [],
          plan: { version: 4, created: 10, placements: [
            { device: "box/cpu0", variant: 1, variant_name: "big" },
            { device: "box/cpu0", variant: 2, variant_name: "small" }] } }, 20);
        const hosted = c.hosted("box/cpu0").map((r) => [r.variant_name, r.warm, r.leaving]);
        return { hosted, skew: c.skew, normalized: c.normalized(c.variants.get(2)),
                 older: c.applyPlan({ version: 3 }, 60), newer: c.applyPlan({ version: 5, placements: [] }, 60),
                 after: c.hosted("box/cpu0").map((r) => [r.variant_name, r.leaving]),
                 known: c.applyDeviceState({ device: "box/cpu0", state: "down", warm: [] }),
                 unknown: c.applyDeviceState({ device: "box/cpu9", state: "up" }), created: c.plan.created };
        """
    )
    assert result["hosted"] == [["big", True, False], ["small", False, False], ["old", True, True]]
    assert (result["skew"], result["normalized"]) == (30, 75)
    assert (result["older"], result["newer"]) == (False, True)
    assert result["after"] == [["big", True], ["old", True]]
    assert (result["known"], result["unknown"], result["created"]) == (True, False, 60)


def test_the_number_of_repairs_follows_events_and_is_read_out(run_script):
    result = run_script(
        """
        document.body.insertAdjacentHTML("beforeend", `<p id="repairs-told"></p><span id="repairs-count" hidden
          data-version="a">0</span>`);
        const { showRepairs } = await import("/nereus/repairs.js");
        const badge = document.getElementById("repairs-count"), told = document.getElementById("repairs-told");
        const shown = [];
        for (const summary of [{ version: "a", count: 0 }, { version: "b", count: 2, error: 1 },
            { version: "c", count: 2, error: 0 }, { version: "d", count: 1 }, { version: "a", count: 0 }, null]) {
          showRepairs(summary);
          shown.push([badge.textContent, badge.hidden, badge.className, told.textContent]);
        }
        return shown;
        """
    )
    assert result == [
        ["0", True, "badge", ""],
        ["2", False, "badge failed", "2 repairs need attention."],
        ["2", False, "badge pending", "2 repairs need attention."],
        ["1", False, "badge pending", "1 repair needs attention."],
        ["0", True, "badge", "All repairs are resolved."],
        ["0", True, "badge", "All repairs are resolved."],
    ]


def test_a_part_that_is_read_again_keeps_focus_and_opened_details(run_script):
    result = run_script(
        """
        const fresh = `<div id="part" data-refresh="repairs"><button data-testid="one">One</button>
          <button data-testid="two">Two, again</button><details id="more"><summary>More</summary></details></div>`;
        document.body.insertAdjacentHTML("beforeend", `<div id="part" data-refresh="repairs">
          <button data-testid="two">Two</button><details id="more" open><summary>More</summary></details></div>`);
        document.querySelector('[data-testid="two"]').focus();
        window.fetch = async () => ({ ok: true, redirected: false, text: async () => fresh });
        const { refresh } = await import("/nereus/refresh.js");
        await refresh();
        return [document.activeElement.textContent, document.getElementById("more").open,
                document.querySelectorAll("#part button").length];
        """
    )
    assert result == ["Two, again", True, 2]


def test_an_applications_range_is_seconds_or_history_and_says_who_answered(run_script):
    result = run_script(
        """
        const { address, parse, span } = await import("/nereus/timerange.js");
        const found = { points: 3, begin: 100, step: 60, p95_ms: [1, null, 2],
          by_variant: { big: [2, null, 1], small: [0, 1, 0], idle: [0, 0, 0] },
          demand: [3, 1, 1], throughput: [2, 1, 1], accuracy: [99, 90, 99], violations: [0, 0, 0] };
        const now = new Date(2026, 4, 5, 14, 30).getTime() / 1000;
        const day = span("yesterday", now);
        const [begin, end] = [day.begin, day.end].map((at) => new Date(1000 * at));
        return { columns: series.columns(found), shares: series.shares(found.by_variant),
          none: series.shares({ big: [null, 0] }), day: [begin.toDateString(), begin.getHours(), end.toDateString()],
          hour: span({ seconds: 3600 }, 10000),
          parsed: ["?range=86400", "?range=yesterday", "?range=7", "", "?begin=100&end=400"]
            .map((query) => parse(query, 300)),
          same: [{ seconds: 300 }, { seconds: 3600 }, "yesterday", { begin: 100, end: 400 }]
            .map((range) => address(range, "/applications/a/", 300)) };
        """
    )
    assert result["columns"]["x"] == [130, 190, 250] and result["columns"]["p95"] == [1, None, 2]
    assert result["shares"] == [["big", 75], ["small", 25]] and result["none"] == []
    assert result["day"] == ["Mon May 04 2026", 0, "Tue May 05 2026"]
    assert result["hour"] == {"begin": 6400, "end": 10000}
    ranges = [{"seconds": 86400}, "yesterday", {"seconds": 10}, {"seconds": 300}, {"begin": 100, "end": 400}]
    assert result["parsed"] == ranges
    queries = ["", "?range=3600", "?range=yesterday", "?begin=100&end=400"]
    assert result["same"] == [f"/applications/a/{query}" for query in queries]


def test_drawing_in_slices_lets_others_in_between_and_draws_the_newest_once(run_script):
    result = run_script(
        """
        const { slice } = await import("/nereus/slices.js");
        const done = [], now = performance.now.bind(performance);
        let drawn = 0;
        performance.now = () => now() + 1000 * drawn;
        const draw = (name) => () => { drawn += 1; done.push(name); };
        slice("a", draw("old a"));
        slice("b", () => { draw("b")(); slice("d", draw("d")); });
        slice("broken", () => { throw new Error("cannot be drawn"); });
        slice("a", draw("a"));
        setTimeout(() => done.push("key"));
        await new Promise((then) => slice("c", then));
        slice("e", draw("e"));
        await new Promise((then) => setTimeout(then, 100));
        return done;
        """
    )
    assert sorted(result) == ["a", "b", "d", "e", "key"] and result.index("a") < result.index("b") < result.index("d")
    assert result.index("key") < result.index("d"), "what takes long is followed by others' turns"


def test_a_what_if_names_what_is_served_otherwise(run_script):
    result = run_script(
        """
        const { otherwise } = await import("/nereus/what_if.js");
        const served = (more) => ({ slo_ms: 50, demand: 1.01, left_out: 0,
          variants: { best: { rate: 1.01, devices: 3 } }, ...more });
        const applications = { same: served(), nearly: served({ demand: 1.02 }), slower: served({ slo_ms: 60 }),
          fewer: served({ variants: { best: { rate: 1.01, devices: 2 } } }), added: served() };
        const now = { same: served(), nearly: served(), slower: served(), fewer: served() };
        return [otherwise({ plan: { applications }, present_plan: { applications: now } }),
                otherwise({ plan: { applications: { first: served() } }, present_plan: {} })];
        """
    )
    assert result == [["slower", "fewer", "added"], ["first"]]
