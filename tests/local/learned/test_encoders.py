import json

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tacit.data.schema import ArraySchema, Categorical, Continuous, Rows, TableSchema
from tacit.local.learned import encoders
from tacit.local.learned.encoders import (
    Bernoulli,
    ConvEncoder,
    GaussianOnLogits,
    Mixed,
    TableFrontEnd,
)
from tacit.privacy.errors import InvalidData, InvalidParameter

torch.set_num_threads(1)

TABLE = TableSchema(
    (
        Continuous("age", 0, 100),
        Categorical("job", ("a", "b", "c"), unseen="other"),
        Continuous("pay", 0, 10, missing="indicate"),
        Categorical("home", ("x", "y")),
    )
)
FRONT = encoders.front_end(TABLE)
ROWS = TABLE.rows(
    {
        "age": np.array([25.0, 50.0]),
        "job": np.array(["c", "never seen"]),
        "pay": np.array([np.nan, 10.0]),
        "home": np.array(["x", "y"]),
    }
)


def numbers_only(numbers: np.ndarray) -> Rows:
    return Rows(numbers.astype(np.float32), np.empty((len(numbers), 0), np.int64))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- networks


def test_mlp_alternates_linear_and_activation():
    network = encoders.mlp([7, *encoders.IMAGE_ENCODER, 3])
    assert [type(layer) for layer in network] == [nn.Linear, nn.ReLU] * 3 + [nn.Linear]
    assert network(torch.zeros(2, 7)).shape == (2, 3)
    assert isinstance(encoders.mlp([2, 2, 2], nn.Tanh)[1], nn.Tanh)


@pytest.mark.parametrize("sizes", [[3], [3, 0]])
def test_mlp_refuses_sizes_without_a_layer(sizes):
    with pytest.raises(InvalidParameter, match="mlp: sizes"):
        encoders.mlp(sizes)


@pytest.mark.parametrize("image", [(28, 28), (8, 8), (5, 9)])
def test_conv_encoder_gives_unit_vectors_of_any_image_size(image):
    encoder = encoders.build(0, lambda: ConvEncoder(image, 6))
    images = torch.rand(3, image[0] * image[1], generator=generator())
    vectors = encoder(images)
    assert vectors.shape == (3, 6)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))
    plain = encoders.build(0, lambda: ConvEncoder(image, 6, unit=False))(images)
    torch.testing.assert_close(nn.functional.normalize(plain, dim=1), vectors)


def test_a_vector_does_not_depend_on_its_batch_not_even_in_training_mode():
    encoder = encoders.build(1, lambda: ConvEncoder((8, 8), 4)).train()
    images = torch.rand(5, 64, generator=generator())
    alone = torch.cat([encoder(image[None]) for image in images])
    torch.testing.assert_close(encoder(images), alone, atol=1e-6, rtol=0)
    # batch statistics would show here
    mixed = nn.Sequential(nn.Linear(64, 4), nn.BatchNorm1d(4))
    assert not torch.allclose(mixed(images[:2]), mixed(images)[:2], atol=1e-3)


def test_conv_encoder_is_made_of_layers_that_onnx_has():
    allowed = {nn.Conv2d, nn.GroupNorm, nn.ReLU, nn.AvgPool2d, nn.Flatten, nn.Linear}
    assert {type(layer) for layer in ConvEncoder((28, 28)).layers} <= allowed


def test_conv_encoder_refuses_an_image_too_small_to_halve():
    with pytest.raises(InvalidParameter, match="ConvEncoder: image"):
        ConvEncoder((3, 28))


# --- seeds and weights


def test_build_draws_from_the_seed_and_leaves_the_ambient_generator_alone():
    before = torch.random.get_rng_state()
    first, again, other = (encoders.build(s, lambda: nn.Linear(3, 3)) for s in (4, 4, 5))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, other.weight)


def test_weights_survive_as_plain_arrays():
    encoder = encoders.build(3, lambda: ConvEncoder((8, 8), 4, widths=(8, 8), hidden=5))
    settings = json.loads(json.dumps(encoder.settings()))
    arrays = encoders.to_arrays(encoder)
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
    back = encoders.restore(lambda: ConvEncoder.from_settings(settings), arrays)
    images = torch.rand(4, 64, generator=generator())
    assert torch.equal(back(images), encoder(images))
    assert not any(weight.requires_grad for weight in back.parameters())


def test_restored_weights_are_copies():
    arrays = encoders.to_arrays(encoders.build(0, lambda: nn.Linear(2, 2)))
    back = encoders.restore(lambda: nn.Linear(2, 2), arrays)
    arrays["weight"][:] = 0
    assert back.weight.abs().sum() > 0


@pytest.mark.parametrize("spoil", ["missing", "surplus", "shape"])
def test_restore_refuses_weights_of_another_shape(spoil):
    arrays = encoders.to_arrays(nn.Linear(2, 2))
    if spoil == "missing":
        del arrays["bias"]
    else:
        arrays["more" if spoil == "surplus" else "bias"] = np.zeros(3, np.float32)
    with pytest.raises(InvalidData, match="names and shapes"):
        encoders.restore(lambda: nn.Linear(2, 2), arrays)


def test_inference_keeps_no_gradient_and_puts_the_settings_back():
    before = torch.backends.cudnn.deterministic
    layer = nn.Linear(2, 2)
    with encoders.inference():
        assert not layer(torch.ones(1, 2)).requires_grad
    assert layer(torch.ones(1, 2)).requires_grad
    assert torch.backends.cudnn.deterministic == before


# --- front end


def test_front_end_lays_out_numbers_indicators_and_categories():
    expected = [
        # age  pay  pay missing  job a b c other  home x y
        [0.25, 0.5, 1, 0, 0, 1, 0, 1, 0],
        [0.5, 1.0, 0, 0, 0, 0, 1, 0, 1],
    ]
    assert TableFrontEnd(2, (1,), (4, 2)) == FRONT
    assert FRONT.dimension == 9
    np.testing.assert_allclose(FRONT(ROWS), expected)
    np.testing.assert_allclose(FRONT(encoders.to_batch(ROWS)[torch.tensor([1])]), expected[1:])


def test_front_end_of_an_array_is_its_numbers():
    rows = numbers_only(np.array([[0.1, 0.9]]))
    front = encoders.front_end(ArraySchema(2, 0, 1))
    np.testing.assert_array_equal(front(rows), rows.numbers)


def test_rows_that_may_not_be_written_to_are_copied_without_a_warning():
    numbers = np.array([[0.25, 0.75]], np.float32)
    numbers.flags.writeable = False
    batch = encoders.to_batch(numbers_only(numbers))
    frozen = encoders.to_batch(Rows(numbers, np.empty((1, 0), np.int64)))
    assert torch.equal(frozen.numbers, batch.numbers)


# --- likelihoods


def test_gaussian_on_logits_is_the_gaussian_density_of_the_stated_transform():
    law = GaussianOnLogits(3, smoothing=0.1, scale=0.7)
    x = np.array([[0.0, 0.3, 1.0]])
    means = torch.tensor([[-1.0, 0.5, 2.0]])
    smoothed = 0.1 + 0.8 * x
    logits = np.log(smoothed / (1 - smoothed))
    expected = stats.norm(means.numpy(), 0.7).logpdf(logits).sum()
    assert law.log_prob(means, numbers_only(x)).item() == pytest.approx(expected, rel=1e-5)


def test_the_density_of_an_image_integrates_to_the_mass_between_black_and_white():
    law = GaussianOnLogits(1)
    x = np.linspace(0, 1, 20001)
    u = 0.05 + 0.9 * x
    means = torch.full((len(x), 1), 0.4)
    density = np.exp(law.log_prob(means, numbers_only(x[:, None])).double().numpy())
    mass = np.trapezoid(density * 0.9 / (u * (1 - u)), x)
    reach = np.log(0.95 / 0.05)
    assert mass == pytest.approx(stats.norm(0.4).cdf(reach) - stats.norm(0.4).cdf(-reach), abs=1e-4)


def test_gaussian_on_logits_maps_an_image_there_and_back():
    law = GaussianOnLogits(5)
    x = torch.linspace(0, 1, 5)[None]
    torch.testing.assert_close(law.mean(law.logits(x)), x, atol=1e-6, rtol=0)
    assert law.logits(x).abs().max().item() == pytest.approx(2.944, abs=1e-3)
    assert torch.equal(law.mean(torch.tensor([[-50.0, 50.0]])), torch.tensor([[0.0, 1.0]]))


def test_gaussian_on_logits_samples_with_its_scale():
    law = GaussianOnLogits(1, scale=0.5)
    drawn = law.logits(law.sample(torch.full((20000, 1), 0.3), generator()))[:, 0].numpy()
    assert stats.kstest(drawn, stats.norm(0.3, 0.5).cdf).pvalue > 1e-4
    assert stats.kstest(drawn, stats.norm(0.3, 0.55).cdf).pvalue < 1e-6  # a mutant


@pytest.mark.parametrize("setting", [{"smoothing": 0}, {"smoothing": 0.5}, {"scale": 0}])
def test_gaussian_on_logits_refuses_what_makes_no_density(setting):
    with pytest.raises(InvalidParameter, match="GaussianOnLogits"):
        GaussianOnLogits(3, **setting)


def test_bernoulli_is_a_law_of_bits():
    law = Bernoulli(2)
    logits = torch.tensor([[0.3, -40.0]])
    bits = np.array([[a, b] for a in (0, 1) for b in (0, 1)])
    each = law.log_prob(logits.expand(4, 2), numbers_only(bits)).double()
    assert each.exp().sum().item() == pytest.approx(1, abs=1e-6)
    assert each[2].item() == pytest.approx(np.log(1 / (1 + np.exp(-0.3))), abs=1e-6)
    assert law.mean(logits)[0, 0].item() == pytest.approx(1 / (1 + np.exp(-0.3)))
    drawn = law.sample(logits.expand(20000, 2), generator()).mean(dim=0)
    assert drawn[0].item() == pytest.approx(1 / (1 + np.exp(-0.3)), abs=0.015)
    assert drawn[1] == 0


def mixed_parameters() -> torch.Tensor:
    means, log_scales, absent = [0.2, 0.7], [np.log(0.3), np.log(0.05)], [0.4]
    job, home = [0.1, -0.2, 0.7, 0.3], [0.0, 1.0]
    return torch.tensor([means + log_scales + absent + job + home], dtype=torch.float32)


def test_mixed_adds_up_its_columns():
    law = Mixed(FRONT)
    assert law.parameter_count == 11
    missing, present = law.log_prob(mixed_parameters().expand(2, -1), ROWS).tolist()
    chance_missing = 1 / (1 + np.exp(-0.4))
    job = np.exp([0.1, -0.2, 0.7, 0.3]) / np.exp([0.1, -0.2, 0.7, 0.3]).sum()
    home = np.exp([0.0, 1.0]) / np.exp([0.0, 1.0]).sum()
    first = stats.norm(0.2, 0.3).logpdf(0.25) + np.log(chance_missing * job[2] * home[0])
    second = stats.norm(0.2, 0.3).logpdf(0.5) + stats.norm(0.7, 0.05).logpdf(1.0)
    second += np.log((1 - chance_missing) * job[3] * home[1])
    assert missing == pytest.approx(first, abs=1e-5)
    assert present == pytest.approx(second, abs=1e-4)


def test_mixed_scales_have_a_floor():
    law = Mixed(TableFrontEnd(1))
    narrow = torch.tensor([[0.5, -100.0]])
    exact = law.log_prob(narrow, numbers_only(np.array([[0.5]]))).item()
    assert exact == pytest.approx(stats.norm(0.5, 0.01).logpdf(0.5), abs=1e-5)


def test_missing_numbers_leave_gradients_finite():
    parameters = mixed_parameters().expand(2, -1).clone().requires_grad_()
    Mixed(FRONT).log_prob(parameters, ROWS).sum().backward()
    assert bool(parameters.grad.isfinite().all())
    assert parameters.grad[0, 1] == 0  # the mean of a number that is not there


def test_mixed_draws_rows_in_the_front_ends_layout_with_its_own_frequencies():
    law = Mixed(FRONT)
    parameters = mixed_parameters().expand(20000, -1)
    expected, drawn = law.mean(parameters), law.sample(parameters, generator())
    assert expected.shape == drawn.shape == (20000, FRONT.dimension)
    hot = drawn[:, 3:]
    assert torch.equal(hot[:, :4].sum(dim=1), torch.ones(20000))
    assert set(hot.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(drawn.mean(dim=0)[2:], expected[0, 2:], atol=0.015, rtol=0)
    pay, missing = drawn[:, 1], drawn[:, 2] > 0
    assert bool((pay[missing] == encoders.MISSING).all())
    assert pay[~missing].std().item() == pytest.approx(0.05, rel=0.05)


def test_the_law_follows_the_type_of_rows():
    assert encoders.likelihood(ArraySchema(784, 0, 255, (28, 28))) == GaussianOnLogits(784)
    assert encoders.likelihood(ArraySchema(5, 0, 1)) == Mixed(TableFrontEnd(5))
    assert encoders.likelihood(TABLE) == Mixed(FRONT)
