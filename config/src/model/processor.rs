//! Processors: what changes profiles on their way.

/// `resource`: changes attributes of resources, one action after the other; at least one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResourceProcessor {
    /// The actions, in the order given.
    pub attributes: Vec<AttributeAction>,
}

/// One action on the attribute `key`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttributeAction {
    /// The attribute.
    pub key: String,
    /// What is done to it.
    pub change: AttributeChange,
}

/// What is done to an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttributeChange {
    /// It is added where it is absent.
    Insert(AttributeSource),
    /// It gets another value where it is there.
    Update(AttributeSource),
    /// It gets this value, there or not.
    Upsert(AttributeSource),
    /// It is taken away.
    Delete,
    /// Its value becomes the SHA-256 of it, in hexadecimal digits.
    Hash,
}

/// Where a value comes from. Where it comes from nowhere, nothing is done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AttributeSource {
    /// This value, or that of another attribute.
    pub from: Option<AttributeOrigin>,
    /// The value where the other attribute is absent.
    pub default_value: Option<AttributeValue>,
}

/// A value, or the name of the attribute that has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttributeOrigin {
    /// This value.
    Value(AttributeValue),
    /// That of this attribute.
    Attribute(String),
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A truth value.
    Bool(bool),
}
