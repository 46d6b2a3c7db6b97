"""The paper in twenty minutes, as a marimo notebook.

    marimo edit examples/notebooks/paper_in_twenty_minutes.py    # read it, change it
    python examples/notebooks/paper_in_twenty_minutes.py         # run it whole

Nguyen, Li, Bui, Turner: Variational Continual Learning (ICLR 2018). No GPU and no download.
"""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="The paper in twenty minutes")

with app.setup:
    import marimo as mo
    import numpy as np
    import torch
    from matplotlib.figure import Figure
    from matplotlib.patches import Ellipse
    from sklearn.datasets import load_digits

    import vcl
    from vcl.beliefs import FullGaussian
    from vcl.coresets import RandomK
    from vcl.learner import generative_vcl
    from vcl.projections import Exact, KroneckerLaplace

    BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#6b7280"


@app.cell
def _():
    # The budget of the notebook. `-- --quick` after a command tries everything in seconds; its numbers mean nothing.
    quick = "quick" in mo.cli_args()
    mo.callout("A try with --quick: the numbers and pictures mean nothing.", kind="warn") if quick else None
    return (quick,)


@app.cell
def _():
    mo.md(r"""
    # The paper in twenty minutes

    **Variational continual learning** (Nguyen, Li, Bui, Turner, ICLR 2018) says: a network that keeps a *distribution*
    over its weights already knows how to learn one task after another. Bayes' rule does it.

    | minutes | part | you will see |
    | :-- | :-- | :-- |
    | 0 | 1. The recursion | a curve, learned in three parts, of which none is kept |
    | 4 | 2. The projection | what independent weights cannot say |
    | 8 | 3. Networks | fine-tuning, EWC and VCL on permuted digits |
    | 13 | 4. What forgets, and why | which weights the tasks have used |
    | 17 | 5. Generators | digits drawn from memory |

    Symbols are those of the paper, and so are names in the code. Change a number, and what depends on it runs again.
    """)
    return


@app.cell
def _():
    mo.md(r"""
    ## 1. The recursion

    Data arrives in parts $\mathcal D_1, \mathcal D_2, \dots$ The posterior after all of them needs the last posterior
    and the new data, and nothing else:

    $$
    p(\theta \mid \mathcal D_{1:T}) \;\propto\; p(\theta) \prod_{t=1}^{T} p(\mathcal D_t \mid \theta)
    \;\propto\; p(\theta \mid \mathcal D_{1:T-1})\; p(\mathcal D_T \mid \theta)
    $$

    *Yesterday's posterior is today's prior.* For a linear model with Gaussian noise this can be computed exactly. Ours
    has fixed bumps $\phi(x)$ as features: $y = \theta^\top \phi(x) + \varepsilon$.
    """)
    return


@app.cell
def _():
    centres = np.linspace(-4, 4, 25)
    noise, points = 0.15, 12
    intervals = ((-3.0, -1.4), (-0.8, 0.8), (1.4, 3.0))

    def phi(x):
        """Bumps of width 0.6, [N, 25]."""
        return np.exp(-0.5 * ((x[:, None] - centres) / 0.6) ** 2)

    def truth(x):
        return np.sin(1.8 * x) + 0.2 * x

    random = np.random.default_rng(0)
    curve = []  # D_1, D_2, D_3
    for low, high in intervals:
        _x = np.sort(random.uniform(low, high, points))
        curve.append((_x, truth(_x) + noise * random.standard_normal(points)))
    return centres, curve, noise, phi, truth


@app.cell
def _(centres, curve, noise, phi):
    line = vcl.LinearGaussian(inputs=len(centres), noise=noise)  # p(y | theta, x), and the prior N(0, I)
    by_bayes = vcl.Method(Exact())  # proj is Bayes' rule itself

    def as_task(x, y, name):
        inputs, targets = (torch.as_tensor(each, dtype=torch.float32) for each in (phi(x), y))
        return vcl.Task(name, vcl.dataset(inputs, targets, name))

    def after(tasks):
        """q_t after each task: the loop of Algorithm 1."""
        begun = vcl.initial(line, by_bayes, runs=1)
        return [state.propagated for state in vcl.learn(begun, tasks, line, by_bayes, vcl.Rng(0))]

    posteriors = after([as_task(*each, f"part {t}") for t, each in enumerate(curve, 1)])
    (at_once,) = after([as_task(*(np.concatenate(each) for each in zip(*curve, strict=True)), "all parts")])
    gap = float((posteriors[-1].mean - at_once.mean).abs().max())
    return gap, posteriors


@app.cell
def _(curve, phi, posteriors, truth):
    def drawn_bands():
        figure = Figure(figsize=(9, 2.9), layout="constrained")
        axes = figure.subplots(1, 3, sharey=True)
        grid = np.linspace(-4, 4, 200)
        for t, (axis, q) in enumerate(zip(axes, posteriors, strict=True)):
            mean = phi(grid) @ q.mean[0].numpy()
            covariance = torch.linalg.inv(q.precision[0].double()).numpy()
            sd = np.sqrt(np.einsum("nd,de,ne->n", phi(grid), covariance, phi(grid)))
            axis.fill_between(grid, mean - 2 * sd, mean + 2 * sd, color=BLUE, alpha=0.25, lw=0)
            axis.plot(grid, mean, color=BLUE, lw=2)
            axis.plot(grid, truth(grid), ":", color=GREY)
            for old in curve[:t]:
                axis.plot(*old, "o", color=GREY, ms=4, mfc="none")
            axis.plot(*curve[t], "o", color="black", ms=4)
            axis.set(title=f"after part {t + 1}", ylim=(-3.2, 3.2), xlabel="x")
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel("mean ± 2 sd of q(f)")
        return figure

    bands = drawn_bands()
    bands
    return (bands,)


@app.cell
def _(gap):
    mo.md(rf"""
    Black points are new; grey rings were learned earlier and are **not kept**. The band narrows where data came and
    stays narrow there: the past is in $q$. Learning the parts in turn and all at once gives the same posterior. Its
    means differ by {gap:.0e} at most, which is rounding.
    """)
    return


@app.cell
def _():
    mo.md(r"""
    ## 2. The projection

    For a network the product $q_{t-1}(\theta)\, p(\mathcal D_t \mid \theta)$ is no distribution that one can write
    down. So it is *projected* onto a family $\mathcal Q$ that one can:

    $$
    q_t(\theta) = \mathrm{proj}\big(q_{t-1}(\theta)\, p(\mathcal D_t \mid \theta)\big)
    = \arg\min_{q \in \mathcal Q} \mathrm{KL}\Big(q(\theta) \,\Big\|\, \tfrac{1}{Z_t}\, q_{t-1}(\theta)\,
    p(\mathcal D_t \mid \theta)\Big) \tag{1}
    $$

    The paper's family is the *mean field*: independent Gaussians $\prod_d \mathcal N(\theta_d; \mu_d, \sigma_d^2)$.
    What is lost? Take a straight line, $y = \theta_0 + \theta_1 x + \varepsilon$, and points that all lie near one
    $x$. They say much about the line at that $x$, so intercept and slope must move together. Independent weights
    cannot. For a Gaussian target, the minimum of (1) has the target's mean and the diagonal of its precision. A
    projection is a function from the target to a belief, so in vcl this is one line: `without_correlations` below.
    Move the slider: at $x = 0$ little is lost.
    """)
    return


@app.cell
def _():
    class MeanFieldOfExact:
        """proj(p*) = argmin_q KL(q || p*) over independent Gaussians, for a Gaussian p*."""

        def initial(self, prior):
            return Exact().initial(prior)

        def __call__(self, target, rng, report=None):
            p = Exact()(target, rng)
            without_correlations = torch.diag_embed(p.precision.diagonal(dim1=-2, dim2=-1))
            return FullGaussian(p.layout, p.mean, without_correlations)

    return (MeanFieldOfExact,)


@app.cell
def _():
    where = mo.ui.slider(0.0, 3.0, step=0.5, value=2.0, label="the first points lie around x =", show_value=True)
    where
    return (where,)


@app.cell
def _(MeanFieldOfExact, where):
    def two_weights(centre):
        """Exact and mean-field posteriors of intercept and slope after points near ``centre``, then near -1."""
        random, s = np.random.default_rng(1), 0.3
        parts = []
        for t, middle in enumerate((centre, -1.0)):
            x = middle + 0.3 * random.standard_normal(10)
            design = torch.tensor(np.stack([np.ones(10), x], 1), dtype=torch.float32)
            y = torch.tensor(0.5 - 0.7 * x + s * random.standard_normal(10), dtype=torch.float32)
            parts.append(vcl.Task(f"{t}", vcl.dataset(design, y, f"{t}")))
        model, found = vcl.LinearGaussian(2, noise=s), {}
        for name, project in (("exact", Exact()), ("mean field", MeanFieldOfExact())):
            method = vcl.Method(project)
            found[name] = []
            for state in vcl.learn(vcl.initial(model, method, 1), parts, model, method, vcl.Rng(0)):
                q = state.propagated
                found[name].append((q.mean[0].numpy(), torch.linalg.inv(q.precision[0].double()).numpy()))
        return found

    def drawn_ellipses(found, centre):
        figure = Figure(figsize=(8, 3.4), layout="constrained")
        axes = figure.subplots(1, 2, sharex=True, sharey=True)
        titles = (f"after 10 points near x = {centre:g}", "and 10 more near x = -1")
        for t, (axis, title) in enumerate(zip(axes, titles, strict=True)):
            for (name, beliefs), colour in zip(found.items(), (GREY, BLUE), strict=True):
                mean, covariance = beliefs[t]
                lengths, directions = np.linalg.eigh(covariance)
                angle = np.degrees(np.arctan2(directions[1, 1], directions[0, 1]))
                width, height = 4 * np.sqrt(lengths[::-1])  # two standard deviations to each side
                axis.add_patch(Ellipse(mean, width, height, angle=angle, color=colour, alpha=0.3, label=name))
                axis.plot(*mean, "o", color=colour, ms=5)
            axis.plot(0.5, -0.7, "x", color="black", ms=8, label="truth")
            axis.set(title=title, xlabel=r"intercept $\theta_0$", xlim=(-1.4, 1.8), ylim=(-1.4, 0.3))
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel(r"slope $\theta_1$")
        axes[0].legend(loc="lower left", frameon=False)
        return figure

    ellipses = drawn_ellipses(two_weights(where.value), where.value)
    ellipses
    return (ellipses,)


@app.cell
def _():
    mo.md(r"""
    On the left the exact posterior is a thin slanted ellipse: many lines pass through the same points. The mean field
    has the same centre and fits inside, narrow both ways, because the KL of (1) punishes mass where the target has
    none. It is too sure of both weights, so on the right it follows the new points less than it should. Each
    projection adds such an error, and the next one starts from it. That is the price; what it buys is $2D$ numbers
    in place of $D^2$.
    """)
    return


@app.cell
def _():
    mo.md(r"""
    ## 3. Networks

    For a network (1) is solved by gradients. The same minimum maximises the *online lower bound*

    $$
    \mathcal L^t(q_t) = \sum_{n=1}^{N_t} \mathbb E_{\theta \sim q_t}\big[\log p(y_t^{(n)} \mid \theta, x_t^{(n)})\big] \;-\;
    \mathrm{KL}\big(q_t(\theta) \,\|\, q_{t-1}(\theta)\big) \tag{4}
    $$

    Fit the new data; stay near the last posterior. A **coreset** $C_t$ helps against errors that add up: a few points
    are held out of the recursion and are used only to predict.

    | Algorithm 1 | in vcl |
    | :-- | :-- |
    | $C_0 \leftarrow \emptyset,\ \tilde q_0 \leftarrow p$ | `vcl.initial(model, method, runs)` |
    | for $t = 1 \dots T$: observe $\mathcal D_t$ | `for state in vcl.learn(…)` |
    | $C_t \leftarrow$ from $C_{t-1}$ and $\mathcal D_t$ | `Method(…, RandomK(20))` |
    | $\tilde q_t \leftarrow \mathrm{proj}(\tilde q_{t-1}\, p(\mathcal D_t \cup C_{t-1} \setminus C_t \mid \theta))$ | `Method(VariationalKL(…))`: `state.propagated` |
    | $q_t \leftarrow \mathrm{proj}(\tilde q_t\, p(C_t \mid \theta))$ | `state.predictive` |
    | $p(y^* \mid x^*) = \int q_t(\theta)\, p(y^* \mid \theta, x^*)\, d\theta$ | `vcl.predict(state, …)` |

    The test: 8×8 digits whose pixels are permuted anew in each of five tasks. One network with one head learns them
    one after another. It sees no old pixel again, and is asked about all permutations so far.
    """)
    return


@app.cell
def _(quick):
    runs = 3  # seeds: one computation, stacked
    epochs, hidden = (2, 20) if quick else (40, 100)
    torch.manual_seed(0)
    _x, _y = load_digits(return_X_y=True)
    pixels, labels = torch.tensor(_x / 16, dtype=torch.float32), torch.tensor(_y)
    orders = [torch.arange(64), *(torch.randperm(64) for _ in range(4))]
    split = torch.arange(1200).expand(runs, -1)  # 1,200 digits to learn from, 597 to test on

    tasks = []
    for _t, _order in enumerate(orders):
        _train, _test = vcl.dataset(pixels[:, _order], labels, f"{_t}", "all", runs).divide(split)
        tasks.append(vcl.Task(f"permutation {_t + 1}", _train, _test, heads={"all": 10}))
    network = vcl.Network(vcl.mlp(64, (hidden,)), features=hidden, likelihood=vcl.Categorical())
    return epochs, network, pixels, runs, tasks


@app.cell
def _(epochs, network, runs, tasks):
    adam = vcl.Ascent(epochs=epochs, batch=100, lr=5e-3)
    methods = {
        "fine-tuning": vcl.Method(vcl.MaximumLikelihood(adam)),
        "EWC": vcl.Method(vcl.ElasticWeightConsolidation(adam, lam=100.0)),
        "VCL": vcl.Method(vcl.VariationalKL(adam, draws=2, estimator="local")),
        "VCL + coreset": vcl.Method(vcl.VariationalKL(adam, draws=2, estimator="local"), RandomK(20)),
    }

    def learned(method):
        """The states after each task, and accuracies [runs, after task, on task]."""
        rng, states = vcl.Rng(tuple(range(runs))), []
        found = np.full((runs, len(tasks), len(tasks)), np.nan)
        for t, state in enumerate(vcl.learn(vcl.initial(network, method, runs), tasks, network, method, rng)):
            for j, old in enumerate(tasks[: t + 1]):
                p = vcl.predict(state, network, old.test.x, "all", rng, draws=20)  # [runs, N, 10]
                found[:, t, j] = (p.argmax(-1) == old.test.y).float().mean(-1)
            states.append(state)
        return states, found

    accuracy = {name: learned(method)[1] for name, method in methods.items()}
    return accuracy, adam, learned


@app.cell
def _(accuracy):
    def drawn_curves(found):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1))
        styles = zip(found.items(), (ORANGE, GREEN, BLUE, PURPLE), "s^oD", strict=True)
        for (name, a), colour, mark in styles:
            tasks = np.arange(1, a.shape[1] + 1)
            average = 100 * np.nanmean(a, axis=2)  # over the tasks so far
            for axis, values in ((left, average), (right, 100 * a[:, -1])):
                mean, error = values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))
                axis.fill_between(tasks, mean - error, mean + error, color=colour, alpha=0.2, lw=0)
                axis.plot(tasks, mean, mark + "-", color=colour, label=name)
        left.set(title="average over the tasks so far", xlabel="tasks learned", ylabel="accuracy, %", ylim=(0, 100))
        right.set(title="each task, after the last", xlabel="task", ylim=(0, 100))
        left.legend(loc="lower left", frameon=False)
        for axis in (left, right):
            axis.set_xticks(tasks)
            axis.spines[["top", "right"]].set_visible(False)
        return figure

    curves = drawn_curves(accuracy)
    curves
    return (curves,)


@app.cell
def _(accuracy):
    _rows = "\n".join(
        f"| {name} | {100 * a[:, -1].mean():.0f} ± {100 * a[:, -1].mean(-1).std(ddof=1) / len(a) ** 0.5:.0f} "
        f"| {100 * a[:, -1, 0].mean():.0f} | {100 * a[:, -1, -1].mean():.0f} |"
        for name, a in accuracy.items()
    )
    mo.md(rf"""
    | after five tasks, accuracy in % | average ± s.e. | on the first task | on the last |
    | :-- | ---: | ---: | ---: |
    {_rows}

    Fine-tuning is excellent at the newest task and has lost the first. EWC and VCL hold on to the past and pay with a
    little of the newest task; a coreset of 20 points a task adds to VCL. Here EWC has the best λ of 1, 10, 100 and
    1000; VCL has no λ. The full-size experiment (MNIST, ten tasks, ten seeds) is in the README: 82 for EWC, 88 for
    VCL, 93 with a coreset.
    """)
    return


@app.cell
def _():
    mo.md(r"""
    ## 4. What forgets, and why

    The matrix below is the whole story of a method: row $t$ is *after task t*, column $j$ is *on task j*. Forgetting
    is a column that fades downwards.
    """)
    return


@app.cell
def _(accuracy):
    def drawn_matrices(found):
        figure = Figure(figsize=(9, 2.7), layout="constrained")
        axes = figure.subplots(1, len(found))
        for axis, (name, a) in zip(axes, found.items(), strict=True):
            mean = 100 * a.mean(0)
            image = axis.imshow(mean, cmap="Blues", vmin=20, vmax=100)
            for t, j in zip(*np.tril_indices(len(mean)), strict=True):
                colour = "white" if mean[t, j] > 65 else "black"
                axis.text(j, t, f"{mean[t, j]:.0f}", ha="center", va="center", color=colour, fontsize=8)
            ticks = range(len(mean))
            axis.set(title=name, xlabel="on task", xticks=ticks, xticklabels=[t + 1 for t in ticks], yticks=ticks)
            axis.set_yticklabels([t + 1 for t in ticks])
            axis.spines[:].set_visible(False)
        axes[0].set_ylabel("after task")
        figure.colorbar(image, ax=axes, label="accuracy, %", shrink=0.8)
        return figure

    matrices = drawn_matrices(accuracy)
    matrices
    return (matrices,)


@app.cell
def _():
    mo.md(r"""
    Why does VCL hold? Between Gaussians the KL of (4) has a term for each weight $d$,

    $$
    \mathrm{KL}\big(q_t \,\|\, q_{t-1}\big) = \sum_d \left[ \log\frac{\sigma_{t-1,d}}{\sigma_{t,d}} +
    \frac{\sigma_{t,d}^2 + (\mu_{t,d} - \mu_{t-1,d})^2}{2\, \sigma_{t-1,d}^2} \;-\; \frac12 \right] .
    $$

    A weight that the past has pinned down, with a small $\sigma_{t-1,d}$, is dear to move. A weight that no task has
    used keeps the prior's $\sigma = 1$ and is free. Below is $\sigma$ by input: the mean over the weights that leave
    each of the 64 pixels. It is of the same bound fitted by natural gradients, because Adam moves a log variance by at
    most its learning rate a step and stops short.
    """)
    return


@app.cell
def _(adam, learned):
    by_newton = vcl.VariationalKL(adam, draws=2, estimator="local", natural=vcl.NaturalGradient())
    natural_states, _ = learned(vcl.Method(by_newton))
    return (natural_states,)


@app.cell
def _(natural_states):
    def sd_by_pixel(q):
        """The mean sigma of the weights that leave each pixel, [8, 8], over units and runs."""
        parts = q.layout.split((0.5 * q.log_var).exp())
        (first,) = (each for each in parts.values() if each.shape[-1] == 64)  # [runs, units, pixels]
        return first.mean((0, 1)).reshape(8, 8).numpy()

    def drawn_sds(states):
        figure = Figure(figsize=(9, 2.3), layout="constrained")
        axes = figure.subplots(1, len(states))
        for t, (axis, state) in enumerate(zip(axes, states, strict=True), 1):
            sds = sd_by_pixel(state.propagated)
            image = axis.imshow(sds, cmap="Blues_r", vmin=0.4, vmax=1)
            axis.set(title=f"after task {t}", xticks=[], yticks=[], xlabel=f"mean {sds.mean():.2f}")
            axis.spines[:].set_visible(False)
        figure.colorbar(image, ax=axes, label=r"mean $\sigma$", shrink=0.8)
        return figure

    held = drawn_sds(natural_states)
    held
    return (held,)


@app.cell
def _():
    mo.md(r"""
    After task 1 the pixels at the edges, which are blank in every digit, are as free as before. The next permutations
    bring digits there too, and the free weights run out: each task finds a tighter prior than the last. So VCL keeps
    old tasks at the cost of the newest, and has less and less room.
    """)
    return


@app.cell
def _(adam, learned):
    _, kronecker_accuracy = learned(vcl.Method(KroneckerLaplace(adam)))
    return (kronecker_accuracy,)


@app.cell
def _(accuracy, kronecker_accuracy):
    mo.md(rf"""
    Then why does VCL forget at all? Part 2 has the answer: weights act together, and the mean field cannot say so. A
    **Kronecker-factored** posterior has, for each layer, one matrix for the inputs and one for the outputs. It came
    after the paper; in vcl it is one other projection under the same loop, `Method(KroneckerLaplace(adam))`:

    **{100 * kronecker_accuracy[:, -1].mean():.0f} %** after five tasks without a coreset, where the mean field has
    {100 * accuracy["VCL"][:, -1].mean():.0f} %.
    """)
    return


@app.cell
def _():
    mo.md(r"""
    ## 5. Generators

    Section 4 of the paper does the same to *generative* models. A variational autoencoder has a decoder
    $p(x \mid z, \theta)$. Each digit is a task with an encoder and first decoder layers of its own; the last layers
    $\theta^S$ are shared, and carry the posterior. The bound is (4) with the bound of each image in the place of
    $\log p(y \mid \theta, x)$. After the last task each generator is asked for digits it has not seen since its turn.
    """)
    return


@app.cell
def _(pixels, quick):
    digits, _labels = (0, 1, 2, 3), torch.tensor(load_digits().target)
    climb = vcl.Ascent(epochs=2 if quick else 1000, batch=50, lr=1e-3)

    def generators(method):
        """A generator for each digit, learned in turn, and what each draws at the end."""
        learner = vcl.GenerativeLearner(vcl.mlp_vae(pixels=64, latent=8, features=50, hidden=50), method)
        for digit in digits:
            learner.update(pixels[_labels == digit].unflatten(1, (8, 8)), task=f"{digit}")
        return [learner.sample(f"{digit}", count=8)[0].numpy() for digit in digits]

    images = {
        "naive: maximum likelihood": generators(vcl.Method(vcl.MaximumLikelihood(climb))),
        "VCL": generators(generative_vcl(climb, draws=3)),
    }
    return digits, images


@app.cell
def _(digits, images):
    def drawn_images():
        figure = Figure(figsize=(9, 2.7), layout="constrained")
        for part, (name, rows) in zip(figure.subfigures(1, 2, wspace=0.05), images.items(), strict=True):
            part.suptitle(name)
            for place, (digit, row) in zip(part.subplots(len(digits), 1), zip(digits, rows, strict=True), strict=True):
                place.imshow(np.concatenate(list(row), axis=1), cmap="gray_r", vmin=0, vmax=1)
                place.set_ylabel(f"task {digit}", rotation=0, ha="right", va="center")
                place.set(xticks=[], yticks=[])
                place.spines[:].set_visible(False)
        return figure

    drawn_digits = drawn_images()
    drawn_digits
    return (drawn_digits,)


@app.cell
def _():
    mo.md(r"""
    ## To try

    1. Give EWC λ = 1, then 1000 (part 3). What happens to the first task, and what to the last?
    2. Keep 5, then 100 points of each task. When is the coreset worth more than the posterior?
    3. Make the network twice as wide. Which methods gain, and why?
    4. Replace `VariationalKL` by `vcl.LaplacePropagation(adam)`. What does it carry to the next task?
    5. Learn the curve of part 1 from right to left. Does anything change at the end?

    **Go on:** [the paper](https://arxiv.org/abs/1710.10628) itself; `docs/how-it-works.md` tells its story with the
    names of vcl, `docs/methods.md` has Algorithm 1
    beside the code, `docs/notation.md` each symbol beside its name, and *Your data in ten minutes* is the notebook for
    data of your own.
    """)
    return


if __name__ == "__main__":
    app.run()
