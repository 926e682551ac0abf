"""JAX functions as operations, and buffers shared with JAX and through DLPack."""

import functools
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.experimental import pallas as pl

import tarry
from harness import compiles, cuts
from tarry.errors import AsideError, PoisonedError
from tarry.experimental import call_jax, scan
from tarry.flow.identity import identity


def made(*shape, grad=False, dtype=torch.float32):
    values = torch.linspace(-1, 1, torch.Size(shape).numel(), dtype=dtype)
    return values.reshape(shape).to("tarry").requires_grad_(grad)


def test_containers_static_values_and_dtypes():
    def f(d, k, *, shift):
        y = jnp.sin(d["a"]) * d["b"][0] * k + shift
        return {"y": y, "at": jnp.argmax(d["a"]), "zeros": (jnp.zeros(3),)}

    out = call_jax(f, {"a": made(4), "b": [made(4)]}, 3, shift=made(4))
    x = made(4).cpu()
    torch.testing.assert_close(out["y"].cpu(), x.sin() * x * 3 + x)
    assert out["at"].dtype is torch.int32 and out["at"].item() == 3
    assert out["zeros"][0].dtype is torch.float32


def test_64_bit_types_where_an_argument_is_of_one():
    out = call_jax(lambda a: a * 2 + jnp.zeros(3), made(3, dtype=torch.float64))
    assert out.dtype is torch.float64
    torch.testing.assert_close(out.cpu(), made(3, dtype=torch.float64).cpu() * 2)
    assert call_jax(lambda n: n + 1, torch.arange(3).to("tarry")).tolist() == [1, 2, 3]
    assert not jax.config.jax_enable_x64


def test_gradients_of_any_order():
    def f(x, y):
        return jnp.sin(x) * y, jnp.argmax(x), (x * x).sum()

    x, y = made(4, grad=True), made(4)
    a, b, c = call_jax(f, x, y)
    assert a.requires_grad and not b.requires_grad and c.requires_grad
    (g,) = torch.autograd.grad(a.sum() + 3 * c, x, create_graph=True)
    u, v = made(4).cpu().requires_grad_(), made(4).cpu()
    (want,) = torch.autograd.grad(
        (u.sin() * v).sum() + 3 * (u * u).sum(), u, create_graph=True
    )
    torch.testing.assert_close(g.detach().cpu(), want.detach())
    (g2,) = torch.autograd.grad((g * g).sum(), x)
    (want2,) = torch.autograd.grad((want * want).sum(), u)
    torch.testing.assert_close(g2.cpu(), want2)


def test_complex_gradients_are_those_of_pytorch():
    z = torch.complex(made(3).cpu(), made(3).cpu().flip(0))
    ours = z.to("tarry").requires_grad_()
    call_jax(lambda z: jnp.abs(z * z + 1j * z) ** 2, ours).sum().backward()
    wanted = z.clone().requires_grad_()
    ((wanted * wanted + 1j * wanted).abs() ** 2).sum().backward()
    torch.testing.assert_close(ours.grad.cpu(), wanted.grad)


def test_a_pallas_kernel():
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] * 2 + y_ref[...]

    def f(x, y):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(kernel, out_shape=shape, interpret=True)(x, y)

    out = call_jax(f, made(8), made(8)) + 1
    torch.testing.assert_close(out.cpu(), made(8).cpu() * 3 + 1)


def test_one_operation_in_one_program():
    x = made(4)
    tarry.sync()
    with cuts(0):
        y = call_jax(lambda x: jnp.tanh(x @ x.T), made(3, 4)) + 1
    with cuts(1):
        tarry.sync()
    graph = tarry.explain().compiles[-1].source.seen.key.graph
    assert [n.op for n in graph.nodes].count("tarry::jax") == 1
    assert y.shape == (3, 3) and x.sum().item() is not None


SCALE = 2.0


def scaled(x):
    return helper(x) * SCALE


def helper(x):
    return x + 1


def test_the_same_function_made_anew_is_the_same(monkeypatch):
    def run(k):
        return call_jax(lambda x: x * k, made(4)).cpu()

    run(2)
    with compiles(0):
        torch.testing.assert_close(run(2), made(4).cpu() * 2)
    with compiles(1):
        torch.testing.assert_close(run(3), made(4).cpu() * 3)
    call_jax(scaled, made(4)).cpu()
    with compiles(0):
        call_jax(scaled, made(4)).cpu()
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    with compiles(1):
        torch.testing.assert_close(
            call_jax(scaled, made(4)).cpu(), (made(4).cpu() + 1) * 5
        )
    monkeypatch.setitem(globals(), "helper", lambda x: x - 1)
    with compiles(1):
        torch.testing.assert_close(
            call_jax(scaled, made(4)).cpu(), (made(4).cpu() - 1) * 5
        )


def test_identity_of_functions():
    array, items = np.arange(3), [1, 2]

    def over(value):
        return lambda x: x + value

    assert identity(over(1)) == identity(over(1)) != identity(over(1.0))
    assert identity(over(array)) == identity(over(array.copy()))
    before = identity(over(array))
    array[0] = 9
    assert identity(over(array)) != before
    before = identity(over(items))
    items.append(3)
    assert identity(over(items)) != before
    something = object()
    assert identity(over(something)) == identity(over(something))
    assert identity(over(something)) != identity(over(object()))
    part = functools.partial
    assert (
        identity(part(helper, 1))
        == identity(part(helper, 1))
        != identity(part(helper, 2))
    )

    def again(n):
        return again(n - 1) if n else 0

    assert identity(again) == identity(again)
    hash(identity(jnp.sin)), hash(identity(jax.jit(helper)))


def test_in_a_scan():
    def body(c, x):
        c = call_jax(lambda c, x: jnp.tanh(c * x), c, x)
        return c, c

    init, xs = made(3, grad=True), made(4, 3, grad=True)
    last, ys = scan(body, init, xs)
    (last.sum() + (ys * ys).sum()).backward()
    u, v = made(3).cpu().requires_grad_(), made(4, 3).cpu().requires_grad_()
    c, total = u, 0
    for x in v:
        c = torch.tanh(c * x)
        total = total + (c * c).sum()
    (c.sum() + total).backward()
    torch.testing.assert_close(init.grad.cpu(), u.grad)
    torch.testing.assert_close(xs.grad.cpu(), v.grad)


def test_errors_of_calls():
    with pytest.raises(ValueError, match="on cpu"):
        call_jax(jnp.sin, torch.zeros(3))
    with pytest.raises(TypeError, match=r"(?s)incompatible|broadcast"):
        call_jax(lambda x, y: x + y, made(3), made(4))
    outside = made(3)
    with pytest.raises(TypeError, match="as an argument"):
        call_jax(lambda x: x + outside, made(3))


def test_to_jax_shares_the_buffer_that_no_write_reaches():
    x = made(64) * 2
    with cuts(1):
        array = tarry.to_jax(x)
    assert isinstance(array, jax.Array)
    pointer = array.unsafe_buffer_pointer()
    assert tarry.to_jax(x).unsafe_buffer_pointer() == pointer
    before = np.array(array)
    for _ in range(3):
        x.add_(1)
        tarry.sync()
    assert np.array_equal(np.asarray(array), before)
    torch.testing.assert_close(x.cpu(), torch.from_numpy(before) + 3)


def test_a_buffer_that_only_dlpack_holds_is_not_overwritten():
    x = made(64) * 2
    host = torch.from_dlpack(tarry.to_jax(x))
    before = host.clone()
    gc.collect()
    for _ in range(3):
        x.add_(1)
        tarry.sync()
    assert torch.equal(host, before)


def test_to_jax_of_views_host_values_and_what_it_refuses():
    x = made(3, 4)
    assert np.array_equal(tarry.to_jax(x.t()[1:]), x.cpu().t()[1:].numpy())
    assert np.array_equal(tarry.to_jax(torch.ones(3).to("tarry")), np.ones(3))
    assert tarry.to_jax(torch.arange(3).to("tarry")).dtype == np.int64
    for bad in (torch.zeros(3), 1.0):
        with pytest.raises(TypeError, match="tensor on tarry"):
            tarry.to_jax(bad)
    with pytest.raises(RuntimeError, match="gradient"):
        tarry.to_jax(made(3, grad=True))
    with pytest.raises(AsideError):
        scan(lambda c, x: (c, torch.from_numpy(np.array(tarry.to_jax(x)))), made(3), x)


def test_from_jax():
    array = jnp.arange(6.0).reshape(2, 3)
    x = tarry.from_jax(array)
    assert x.device.type == "tarry" and tarry.to_jax(x) is array
    x.mul_(2)
    assert x.tolist() == [[0, 2, 4], [6, 8, 10]]
    assert np.array_equal(array, np.arange(6.0).reshape(2, 3))
    assert (tarry.from_jax(jnp.asarray(1.5)) + 1).item() == 2.5
    half = tarry.from_jax(jnp.ones(3, jnp.bfloat16))
    assert half.dtype is torch.bfloat16
    with pytest.raises(TypeError, match="JAX array"):
        tarry.from_jax(np.zeros(3))
    gone = jnp.ones(3) * 2
    gone.delete()
    with pytest.raises(ValueError, match="deleted"):
        tarry.from_jax(gone)


def test_dlpack():
    host = torch.arange(64.0)
    x = tarry.from_dlpack(host)
    x.add_(1)
    assert x.tolist() == (host + 1).tolist() and host[0] == 0
    assert tarry.from_dlpack(np.ones(3)).tolist() == [1, 1, 1]
    assert tarry.from_dlpack(tarry.to_dlpack(x)).tolist() == x.tolist()
    assert tarry.from_dlpack(jnp.ones(2)).tolist() == [1, 1]
    with pytest.raises((ValueError, BufferError), match="tarry"):
        torch.from_dlpack(x)


def test_a_value_that_failed_is_not_handed_out(monkeypatch):
    x = made(3) + 1

    def broken(*_, **__):
        raise RuntimeError("broken")

    with monkeypatch.context() as m:
        m.setattr("tarry.cut.program.launch", broken)
        with pytest.raises(RuntimeError, match="broken"):
            tarry.to_jax(x)
    with pytest.raises(PoisonedError):
        tarry.to_jax(x)
