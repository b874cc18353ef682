"""The table is complete, documented, and quick to import."""

import inspect
import subprocess
import sys

import pytest

import ziggurat.frontends.language as language
from ziggurat.frontends.language import CALLS, METHODS, SIGNATURES, Call

# What the language has to have, with the parameters in order; `!` marks a constant.
LANGUAGE = """
program_id(axis!) num_programs(axis!) smid() globaltimer()
arange(start!,end!) zeros(shape!,dtype!) full(shape!,value,dtype!)
cast(x,dtype!,fp_downcast_rounding!,bitcast!) bitcast(x,dtype!)
add(a,b) sub(a,b) mul(a,b) div(a,b) div_rn(a,b) floordiv(a,b) mod(a,b) neg(x)
and_(a,b) or_(a,b) xor(a,b) invert(x) shl(a,b) shr(a,b)
minimum(a,b) maximum(a,b) clamp(x,min,max) fma(a,b,c)
compare(a,b,kind!) where(condition,x,y)
abs(x) exp(x) exp2(x) log(x) log2(x)
sqrt(x) sqrt_rn(x) rsqrt(x) sin(x) cos(x) tanh(x) erf(x) floor(x) ceil(x) sigmoid(x)
tan(x) asin(x) acos(x) atan(x) atan2(y,x) sinh(x) cosh(x) expm1(x) log1p(x) trunc(x) rint(x) round(x) isnan(x)
isinf(x) isfinite(x) popc(x) clz(x) brev(x) umulhi(a,b) softmax(x,dim!)
expand(x,axis!) broadcast(x,shape) reshape(x,shape!) ravel(x) trans(x,*dims!) permute(x,*dims!) join(a,b) split(x)
interleave(a,b) flip(x,dim!)
cat(a,b)
dot(a,b,acc,input_precision!)
sum(x,axis!,keep_dims!,dtype!)
max(x,axis!,return_indices!,return_indices_tie_break_left!,keep_dims!)
min(x,axis!,return_indices!,return_indices_tie_break_left!,keep_dims!)
argmax(x,axis!,tie_break_left!,keep_dims!) argmin(x,axis!,tie_break_left!,keep_dims!) xor_sum(x,axis!,keep_dims!)
reduce(x,axis!,combine_fn!,keep_dims!) reduce_or(x,axis!,keep_dims!) any(x,axis!,keep_dims!) all(x,axis!,keep_dims!)
prod(x,axis!,keep_dims!,dtype!) cummax(x,axis!,reverse!) cummin(x,axis!,reverse!)
cumsum(x,axis!,reverse!) cumprod(x,axis!,reverse!) associative_scan(x,axis!,combine_fn!,reverse!)
sort(x,dim!,descending!) argsort(x,dim!,descending!) topk(x,k!,dim!,descending!)
histogram(x,num_bins!,mask) gather(src,index,axis!)
load(ptr,mask,other,cache_modifier!,eviction_policy!,volatile!)
store(ptr,value,mask,cache_modifier!,eviction_policy!)
atomic_add(ptr,val,mask,sem!,scope!) atomic_max(ptr,val,mask,sem!,scope!) atomic_min(ptr,val,mask,sem!,scope!)
atomic_and(ptr,val,mask,sem!,scope!) atomic_or(ptr,val,mask,sem!,scope!) atomic_xor(ptr,val,mask,sem!,scope!)
atomic_xchg(ptr,val,mask,sem!,scope!) atomic_cas(ptr,cmp,val,sem!,scope!)
make_tensor_descriptor(base,shape,strides,block_shape!,padding_option!)
load_tensor_descriptor(desc,offsets) store_tensor_descriptor(desc,offsets,value)
philox(seed,c0,c1,c2,c3,n_rounds!) rand(seed,offset,n_rounds!) randn(seed,offset,n_rounds!)
randint(seed,offset,n_rounds!)
rand4x(seed,offset,n_rounds!) randn4x(seed,offset,n_rounds!) randint4x(seed,offset,n_rounds!)
multiple_of(x,values!) max_contiguous(x,values!) max_constancy(x,values!) assume(cond)
static_assert(cond!,msg!) static_print(*values) device_print(prefix!,*args,hex!) device_assert(cond,msg!)
debug_barrier()
inline_asm_elementwise(asm!,constraints!,args,dtype!,is_pure!,pack!)
range(arg1,arg2,step,num_stages!,loop_unroll_factor!,disallow_acc_multi_buffer!,flatten!,warp_specialize!,disable_licm!)
static_range(arg1!,arg2!,step!)
cdiv(x,div) next_power_of_2(n!)
""".split()


def spelt(signature: language.Signature) -> str:
    names = (f"{'*' * p.variadic}{p.name}{'!' * p.constexpr}" for p in signature.parameters)
    return f"{signature.name}({','.join(names)})"


def test_the_table_is_the_language():
    assert sorted(map(spelt, SIGNATURES.values())) == sorted(LANGUAGE)


def test_every_call_is_exported_under_its_name():
    assert CALLS.keys() == SIGNATURES.keys()
    for name, call in CALLS.items():
        assert name in language.__all__
        assert getattr(language, name) is call
        assert isinstance(call, Call) and call.signature is SIGNATURES[name]


def test_all_names_nothing_that_is_not_there():
    for name in language.__all__:
        assert not inspect.ismodule(getattr(language, name)), f"{name} is hidden by the file of that name"


@pytest.mark.parametrize("name", SIGNATURES)
def test_every_parameter_is_documented(name: str):
    signature = SIGNATURES[name]
    listed = [line for line in signature.doc.split("\n") if line.startswith("- `")]
    documented = [part.strip("-` ") for line in listed for part in line.split(":")[0].split(",")]
    assert documented == [p.name for p in signature.parameters]
    assert "\nResult: " in signature.doc
    summary = signature.doc.split("\n")[0]
    assert summary.endswith((".", "`")) or summary.endswith(")")


def test_methods_are_calls_that_take_the_value_first():
    for name in METHODS.values():
        assert SIGNATURES[name].parameters[0].name == "desc"


def test_import_brings_nothing_heavy():
    program = "import ziggurat.frontends.language, sys; print('numpy' in sys.modules, 'difflib' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False"]
