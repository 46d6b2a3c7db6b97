"""Fashion-MNIST: articles of clothing, in the format and sizes of MNIST."""

from vcl.lab.datasets.idx_set import IdxFiles, idx_set
from vcl.lab.datasets.mirror import mirror

FASHION_MNIST = idx_set(
    "fashion-mnist",
    "articles of clothing, 60,000 + 10,000 images of 28x28",
    sha256=IdxFiles(
        train_images="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        train_labels="bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        test_images="5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        test_labels="0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    classes=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    origins=(mirror("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"),),
    also="; on Debian and Ubuntu, `apt install dataset-fashion-mnist` is enough",
)
