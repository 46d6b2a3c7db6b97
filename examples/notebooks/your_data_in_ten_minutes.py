"""Your own data in ten minutes, as a marimo notebook.

    marimo edit examples/notebooks/your_data_in_ten_minutes.py    # read it, change it
    python examples/notebooks/your_data_in_ten_minutes.py         # run it whole

A learner for tables that arrive month by month: update, predict, uncertainty, save and load, drift.
"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Your own data in ten minutes")

with app.setup:
    from pathlib import Path
    from tempfile import TemporaryDirectory

    import marimo as mo
    import numpy as np
    import torch
    from matplotlib.figure import Figure

    import vcl

    BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6b7280"


@app.cell
def _():
    # The budget of the notebook. `-- --quick` after a command tries everything in seconds; its numbers mean nothing.
    quick = "quick" in mo.cli_args()
    mo.callout("A try with --quick: the numbers and pictures mean nothing.", kind="warn") if quick else None
    return (quick,)


@app.cell
def _():
    mo.md(r"""
    # Your own data in ten minutes

    You have tables that arrive month by month, and you may not keep the old ones. A **learner** holds a posterior over
    the weights of a network; each month's table updates it, and nothing of the table stays:

    $$ q_t(\theta) = \mathrm{proj}\big(q_{t-1}(\theta)\, p(\mathcal D_t \mid \theta)\big) $$

    This notebook has nine months of parcels, *made below*, so that we know the truth: will a parcel be late? In months
    4 to 6 the carrier *west* is slow; from month 7 on *west* is well again, and *south* is slow. To use your own
    table, replace the next cell: anything with named columns will do, such as `pandas.read_csv("june.csv")`.
    """)
    return


@app.cell
def _():
    def parcels(month: int, count: int = 400) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """One month: columns by name, and whether each parcel was late."""
        random = np.random.default_rng(month)
        x = {
            "distance": random.uniform(5, 300, count).round(),  # km
            "weight": random.gamma(2.0, 3.0, count).round(1),  # kg
            "hour": random.integers(8, 20, count),
            "carrier": random.choice(["north", "south", "west"], count),
        }
        x["weight"][random.random(count) < 0.05] = np.nan  # the scale was broken
        slow = x["carrier"] == ("none" if month < 4 else "west" if month < 7 else "south")
        score = 0.02 * (x["distance"] - 150) + 0.25 * (x["hour"] - 14) + 0.1 * (np.nan_to_num(x["weight"], nan=6) - 6)
        late = random.random(count) < 1 / (1 + np.exp(-(score + 4.0 * slow - 0.5)))
        return x, np.where(late, "late", "on time")

    months = {month: parcels(month) for month in range(1, 10)}
    table, outcome = months[1]
    first_rows = [{name: column[row] for name, column in table.items()} | {"outcome": outcome[row]} for row in range(5)]
    mo.ui.table(first_rows, selection=None, label="the first five parcels of month 1")
    return months, outcome, table


@app.cell
def _():
    mo.md(r"""
    ## Learn a month, predict the next

    The network is any `nn.Module` that gives features; `vcl.mlp(7, (30,))` is one with 7 inputs. The table becomes
    these: three columns of numbers, one that says where the weight is missing, and one for each of the three carriers.
    Numbers are standardised. If you give a wrong number of inputs, the message says what the columns became.
    """)
    return


@app.cell
def _(months, quick):
    def new_learner():
        torch.manual_seed(0)
        return vcl.ContinualClassifier(vcl.mlp(7, (30,)), epochs=5 if quick else None, verbose=0)

    learner = new_learner()
    learner.update(*months[1])
    p = learner.predict_proba(months[2][0])  # [400, 2], averaged over draws of the weights
    said = learner.predict(months[2][0])
    right = float((said == months[2][1]).mean())
    return learner, new_learner, p, right


@app.cell
def _(learner, p, right):
    late_at = learner.classes().index("late")
    mo.md(rf"""
    ```python
    learner = vcl.ContinualClassifier(vcl.mlp(7, (30,)))
    learner.update(*months[1])                      # the table, and its labels
    p = learner.predict_proba(months[2][0])         # averaged over draws of the weights
    ```

    After one month **{right:.0%}** of the next month's parcels are predicted right. Its first parcel is late with
    p = {p[0, late_at]:.2f}. Decide by costs: if a late parcel costs four times as much as a courier, send a courier
    where p > ¼.
    """)
    return (late_at,)


@app.cell
def _():
    mo.md(r"""
    ## What it is unsure of

    `uncertainty(x)` splits the doubt, in nats: **aleatoric** is chance, which more data does not remove;
    **epistemic** is what the weights disagree about, and more data of that kind removes it. Below is every kind of
    parcel of one carrier, up to three times as far as any that was seen (dots: parcels of month 1).
    """)
    return


@app.cell
def _(late_at, learner, table):
    def drawn_doubt():
        far, late_in_day = np.meshgrid(np.linspace(0, 900, 61), np.linspace(8, 19, 23))
        size = far.size
        grid = {
            "distance": far.ravel(), "weight": np.full(size, 6.0), "hour": late_in_day.ravel(),
            "carrier": np.full(size, "north"),
        }  # fmt: skip
        doubt = learner.uncertainty(grid)
        layers = {
            "p(late)": learner.predict_proba(grid)[:, late_at],
            "aleatoric, nats": doubt.aleatoric,
            "epistemic, nats": doubt.epistemic,
        }
        figure = Figure(figsize=(9, 2.9), layout="constrained")
        for axis, (name, values) in zip(figure.subplots(1, 3, sharey=True), layers.items(), strict=True):
            colours = "PuOr_r" if name == "p(late)" else "Blues"
            limits = (0, 1) if name == "p(late)" else (0, None)
            image = axis.pcolormesh(far, late_in_day, values.reshape(far.shape), cmap=colours, vmin=limits[0],
                                    vmax=limits[1], shading="gouraud")  # fmt: skip
            axis.plot(table["distance"], table["hour"], ".", color="black", ms=1.5, alpha=0.5)
            axis.set(title=name, xlabel="distance, km", xlim=(0, 900))
            figure.colorbar(image, ax=axis)
        figure.axes[0].set_ylabel("hour")
        return figure

    doubt_picture = drawn_doubt()
    doubt_picture
    return (doubt_picture,)


@app.cell
def _():
    mo.md(r"""
    Chance is greatest where the answer changes from *on time* to *late*. Doubt of the weights is greatest where this
    border leaves the dots: there a label would teach most, and `learner.uncertainty(x).epistemic.argsort()[-5:]` are
    the five rows to look at first. Far beyond the dots the learner is sure again, because lateness only ever rose with
    distance. That is extrapolation, and no knowledge: look at where your data ends.
    """)
    return


@app.cell
def _():
    mo.md(r"""
    ## Month by month, and a world that changes

    Each month is predicted **before** it is learned. One learner keeps all that it knows; the other fades it a little
    before each update, `update(x, y, forget=0.3)`: $q_{t-1}$ becomes $q_{t-1}^{0.7}\, p^{0.3}$.
    """)
    return


@app.cell
def _(late_at, months, new_learner):
    def month_by_month(forget):
        """The learner at the end, and its log-loss and accuracy on months 2 to 9, each before it is learned."""
        grown, losses, rights = new_learner(), [], []
        for month, (x, y) in months.items():
            if month > 1:
                p_late = grown.predict_proba(x)[:, late_at]
                losses.append(-np.log(np.where(y == "late", p_late, 1 - p_late)).mean())
                rights.append((grown.predict(x) == y).mean())
            grown.update(x, y, forget=forget)
        return grown, np.array(losses), np.array(rights)

    kept, *kept_scores = month_by_month(0.0)
    _, *fading_scores = month_by_month(0.3)
    scores = {"keeps all": kept_scores, "forget=0.3": fading_scores}
    return kept, scores


@app.cell
def _(scores):
    def drawn_months():
        figure = Figure(figsize=(9, 3), layout="constrained")
        left, right = figure.subplots(1, 2)
        for (name, (losses, rights)), colour, mark in zip(scores.items(), (BLUE, ORANGE), "os", strict=True):
            left.plot(range(2, 10), losses, mark + "-", color=colour, label=name)
            right.plot(range(2, 10), 100 * rights, mark + "-", color=colour, label=name)
        left.set(title="log-loss before learning the month", xlabel="month", ylabel="nats", ylim=(0, None))
        right.set(title="accuracy before learning the month, %", xlabel="month", ylim=(50, 100))
        for axis in (left, right):
            for month, change in ((3.5, " west slow"), (6.5, " south slow")):
                axis.axvline(month, color=GREY, ls=":")
                axis.text(month, axis.get_ylim()[0], change, va="bottom", color=GREY, fontsize=9)
            axis.set_xticks(range(2, 10))
            axis.spines[["top", "right"]].set_visible(False)
        right.legend(loc="lower left", bbox_to_anchor=(0, 0.08), frameon=False)
        return figure

    drift = drawn_months()
    drift
    return (drift,)


@app.cell
def _(scores):
    _kept, _fading = ((losses[2:].mean(), 100 * rights[-1]) for losses, rights in scores.values())
    mo.md(rf"""
    Each change is a surprise to both: accuracy falls for one month, and is back in the next. Over months 4 to 9 the
    log-loss is {_kept[0]:.3f} for the one that keeps all and {_fading[0]:.3f} for the one that fades; in month 9 they
    are right in {_kept[1]:.0f} % and {_fading[1]:.0f} %. A few hundred rows a month outvote the past here, so fading
    hardly matters. It does where a rule turns a little every month: score both on your own data, as above, before you
    choose. `docs/decisions-under-uncertainty.md` has such a comparison on seven streams.
    """)
    return


@app.cell
def _():
    mo.md(r"""
    ## Save it, load it, go on

    A saved learner is a belief with its settings, the classes and the scaling: tensors and JSON, never pickle, and no
    row of your data.
    """)
    return


@app.cell
def _(kept, months):
    with TemporaryDirectory() as _folder:
        kept.save(Path(_folder) / "parcels")
        again = vcl.ContinualClassifier.load(Path(_folder) / "parcels", vcl.mlp(7, (30,)))
        kept.report(Path(_folder) / "parcels.html", *months[9])  # tasks, updates, the most uncertain examples
        page_size = (Path(_folder) / "parcels.html").stat().st_size
    same = bool((again.predict_proba(months[1][0]) == kept.predict_proba(months[1][0])).all())
    return again, page_size, same


@app.cell
def _(again, page_size, same):
    mo.vstack([
        mo.md(rf"""
        ```python
        learner.save("parcels")
        again = vcl.ContinualClassifier.load("parcels", vcl.mlp(7, (30,)))
        learner.report("parcels.html", x, y)            # one page, {page_size / 1000:.0f} kB: open it in a browser
        again.summary()
        ```

        The loaded learner gives the same probabilities, bit for bit: **{same}**. Its summary:
        """),
        mo.plain_text(again.summary()),
    ])  # fmt: skip
    return


@app.cell
def _():
    mo.md(r"""
    ## Next

    - Numbers instead of classes: `vcl.ContinualRegressor`, with intervals (`docs/regression.md`).
    - Groups of data that have outputs of their own: `update(x, y, task="june")` (`docs/your-data.md`).
    - A network that is trained already: `posterior="head"` or `adapters=8` (`docs/backbone.md`).
    - From the shell, without Python: `vcl model new june --hidden 100,100` (`docs/model-command.md`).
    """)
    return


if __name__ == "__main__":
    app.run()
